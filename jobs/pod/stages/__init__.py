"""The stages of a trial pod: each module answers one question about the pod it runs in.

Standard library only, Python 3.8 and newer; nothing is written below this folder, a read-only mount in the pod.
"""
