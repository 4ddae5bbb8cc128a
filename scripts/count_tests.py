#!/usr/bin/env python3
"""Adds up the XML reports of a folder of GoogleTest runs: count_tests.py FOLDER. Names the skip reasons."""

import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = 0
skipped = collections.Counter()
for report in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None:
            failed += 1
        elif case.get("result") == "skipped" or skip is not None:
            message = (skip.get("message") if skip is not None else "") or ""
            skipped[message.strip().splitlines()[-1].strip() if message.strip() else "no reason given"] += 1
        elif case.get("result", "completed") == "completed":
            passed += 1
# ctest's own report: what it runs besides GoogleTest's programs, and programs that broke before they could report.
junit = pathlib.Path(sys.argv[1]) / "ctest.junit"
if junit.exists():
    reported = {report.stem for report in pathlib.Path(sys.argv[1]).glob("*.xml")}
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        if case.get("name").split("/")[-1] + "_test" in reported:
            continue
        if case.get("status") == "run":
            passed += 1
        else:
            failed += 1
            print(f"failed: {case.get('name')}")
for reason, count in skipped.most_common():
    print(f"skipped {count}: {reason}")
print(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped")
