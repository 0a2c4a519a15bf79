"""Causes why a pod or a job did not run or end: symptoms from conditions, events and refusals."""
