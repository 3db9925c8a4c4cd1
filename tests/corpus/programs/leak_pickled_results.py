"""Keeps the pickled form of every result, in case it is asked for again. Memory: anonymous."""

import pickle

from clock import steps

results = {}


def store(number):
    results[number] = pickle.dumps([float(number)] * 9000)  # leak


for step in steps(0.1):
    store(step)
