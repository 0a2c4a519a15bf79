"""The stages of a trial pod: each module tests one property of the pod.

Standard library only, Python 3.8 and newer; nothing is written below this folder, a read-only mount in the pod.
"""
