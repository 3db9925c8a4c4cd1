"""What the trackers and profilers share: settings, events, the watchdog, the peak of a call.

Private, behind `stormlog.tracker`, `.cpu_profiler` and `.profiler`. Must import nothing here.
"""
