"""Figures: described in Python, drawn natively. Private, behind `stormlog.visualizer`."""
