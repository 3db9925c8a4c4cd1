"""Reads an endless XML feed with a pull parser and never clears its root. Memory: anonymous."""

import xml.etree.ElementTree as ElementTree

from clock import steps

ITEM = "<item id='{0}'><title>title {0}</title><text>{1}</text></item>"


def prices(parser):
    for _, element in parser.read_events():
        if element.tag == "item":
            yield int(element.get("id"))


parser = ElementTree.XMLPullParser(["end"])
parser.feed("<feed>")
highest = 0
for step in steps(0.1):
    for number in range(20):
        parser.feed(ITEM.format(step * 20 + number, "words " * 1500))  # leak
    highest = max([highest, *prices(parser)])
