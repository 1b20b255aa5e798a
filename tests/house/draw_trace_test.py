#!/usr/bin/env python3
"""tools/draw_trace.py draws a trace as well-formed SVG, one box per event and one row per lane."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "draw_trace.py"
sys.path.insert(0, str(ROOT / "tools"))
import draw_trace  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"

# As measure/trace_file.cpp writes it.
LINES = [
    '{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"moeflux"}}',
    *(f'{{"ph":"M","pid":1,"tid":{tid},"name":"thread_name","args":{{"name":"{name}"}}}}'
      for tid, name in ((1, "steps"), (2, "compute"), (3, "waits"), (100, "read 1"), (101, "read 2"),
                        (100000, "speculative read 1"))),
    *(f'{{"ph":"M","pid":1,"tid":{tid},"name":"thread_sort_index","args":{{"sort_index":{tid}}}}}'
      for tid in (1, 2, 3, 100, 101, 100000)),
    '{"ph":"X","pid":1,"tid":1,"cat":"step","name":"step","ts":0.000,"dur":9000.000,"args":{}}',
    '{"ph":"X","pid":1,"tid":2,"cat":"compute","name":"router","ts":0.000,"dur":2000.000,"args":{"layer":0}}',
    '{"ph":"X","pid":1,"tid":100,"cat":"demand","name":"record","ts":2000.000,"dur":3000.000,'
    '"args":{"layer":0,"expert":7,"bytes":6000000,"GB/s":2.000}}',
    '{"ph":"X","pid":1,"tid":101,"cat":"demand","name":"record","ts":2001.000,"dur":1000.000,'
    '"args":{"layer":0,"expert":8,"bytes":6000000,"GB/s":6.000}}',
    '{"ph":"X","pid":1,"tid":3,"cat":"wait","name":"experts","ts":2010.000,"dur":2990.000,'
    '"args":{"layer":0}}',
    '{"ph":"X","pid":1,"tid":100000,"cat":"speculation","name":"record","ts":5000.000,"dur":4000.000,'
    '"args":{"layer":1,"expert":300,"bytes":6000000,"GB/s":1.500}}',
    '{"ph":"X","pid":1,"tid":2,"cat":"compute","name":"experts","ts":5000.000,"dur":4000.000,'
    '"args":{"layer":0}}',
    '{"ph":"i","pid":1,"tid":1,"s":"p","cat":"dropped","name":"events dropped","ts":8000.000,'
    '"args":{"events":3}}',
]
TRACE = "[\n" + ",\n".join(LINES) + "\n]\n"
EVENTS = 7


def event(**fields):
    whole = {"ph": "X", "pid": 1, "tid": 1, "cat": "compute", "name": "a", "ts": 0, "dur": 1000, "args": {}}
    return whole | fields


def parsed(trace=TRACE, **window):
    return xml.etree.ElementTree.fromstring(draw_trace.draw(trace, **window))


def rects(picture, kind):
    return [rect for rect in picture.iter(SVG + "rect") if rect.get("class") == kind]


def texts(picture):
    return [text.text for text in picture.iter(SVG + "text")]


class DrawTrace(unittest.TestCase):
    def test_a_trace_has_a_box_per_event_and_a_row_per_track(self):
        picture = parsed()
        self.assertEqual(len(rects(picture, "box")), EVENTS)
        self.assertEqual(len(rects(picture, "row")), 6)
        self.assertEqual(texts(picture)[:6],
                         ["steps", "compute", "waits", "read 1", "read 2", "speculative read 1"])

    def test_boxes_are_placed_by_time(self):
        picture = parsed(width=1000)
        row = rects(picture, "row")[0]
        left, width = float(row.get("x")), float(row.get("width"))
        read = next(box for box in rects(picture, "box") if "expert: 7" in box.find(SVG + "title").text)
        self.assertAlmostEqual(float(read.get("x")), left + width * 2 / 9, delta=0.2)
        self.assertAlmostEqual(float(read.get("width")), width * 3 / 9, delta=0.7)
        self.assertEqual(picture.get("width"), "1000")

    def test_a_window_has_the_boxes_that_touch_it_and_only_their_lanes(self):
        picture = parsed(from_ms=5.5, to_ms=7)
        self.assertEqual(len(rects(picture, "box")), 3)  # the step, the experts, the speculative read
        self.assertEqual(len(rects(picture, "row")), 4)  # no read 1 and 2; waits, although there are none
        row, box = rects(picture, "row")[0], rects(picture, "box")[0]
        self.assertEqual(float(box.get("x")), float(row.get("x")))
        self.assertLessEqual(float(box.get("width")), float(row.get("width")))

    def test_labels_appear_where_they_fit(self):
        wide, narrow = texts(parsed(width=1600)), texts(parsed(width=320))
        for label in ("router, layer 0", "experts, layer 0", "0:7", "0:8", "1:300"):
            self.assertIn(label, wide)
        self.assertNotIn("router, layer 0", narrow)
        self.assertNotIn("0:8", narrow)

    def test_kinds_have_colors_and_a_legend(self):
        picture = parsed()
        self.assertEqual(len(rects(picture, "key")), 6)
        for name in ("step", "read on demand", "speculative read", "wait", "experts", "router"):
            self.assertIn(name, texts(picture))
        self.assertEqual({box.get("fill") for box in rects(picture, "box")},
                         {key.get("fill") for key in rects(picture, "key")})
        self.assertEqual(len({key.get("fill") for key in rects(picture, "key")}), 6)

    def test_a_kind_has_the_same_color_in_every_window(self):
        def color(picture):
            return next(box.get("fill") for box in rects(picture, "box")
                        if box.find(SVG + "title").text.startswith("router"))

        self.assertEqual(color(parsed()), color(parsed(to_ms=1)))

    def test_the_axis_has_round_times(self):
        self.assertEqual(draw_trace.ticks_of(0, 9, 900), ([float(i) for i in range(10)], 0))
        times, decimals = draw_trace.ticks_of(1200.13, 1200.47, 900)
        self.assertEqual([f"{time:.{decimals}f}" for time in times],
                         ["1200.15", "1200.20", "1200.25", "1200.30", "1200.35", "1200.40", "1200.45"])

    def test_dropped_events_are_marked(self):
        def marks(picture):
            return [line.find(SVG + "title").text for line in picture.iter(SVG + "line")
                    if line.get("class") == "dropped"]

        self.assertEqual(marks(parsed()), ["3 events dropped"])
        self.assertEqual(marks(parsed(to_ms=7)), [])

    def test_it_has_a_light_and_a_dark_theme(self):
        self.assertIn("prefers-color-scheme: dark", parsed().find(SVG + "style").text)

    def test_an_open_or_torn_trace_is_drawn_up_to_its_last_complete_line(self):
        lines = TRACE.splitlines()
        for text in ("\n".join(lines[:-1]), "\n".join(lines[:-1])[:-20], "\n".join(lines[:-2])):
            self.assertEqual(len(rects(parsed(text), "box")), EVENTS, text[-40:])
        self.assertEqual(len(rects(parsed("\n".join(lines[:-2])[:-30]), "box")), EVENTS - 1)

    def test_the_object_form_of_other_programs_is_drawn_too(self):
        self.assertEqual(len(rects(parsed(json.dumps({"traceEvents": json.loads(TRACE)})), "box")), EVENTS)

    def test_enclosed_boxes_are_lower(self):
        events = [event(name="inner", ts=200, dur=300), event(name="outer"), event(ts=1000)]
        full, inset = draw_trace.ROW_HEIGHT, draw_trace.INSET
        self.assertEqual([int(box.get("height")) for box in rects(parsed(json.dumps(events)), "box")],
                         [full, full - inset, full])

    def test_strange_events_do_not_break_the_picture(self):
        strange = [event(name="<&>\"'\u0001\ud800"), event(args={"<": "]]>"}), event(dur=0), event(dur=-5),
                   event(tid=[1]), event(args="text", cat=None), event(args={"layer": {}, "expert": None})]
        skipped = [event(ts="soon"), event(dur=None), event(ts=float("nan")), event(ts=10 ** 400),
                   event(dur=True), {"ph": "M", "name": "thread_name", "args": 7}, 7, None, {}]
        self.assertEqual(len(rects(parsed(json.dumps(strange + skipped)), "box")), len(strange))

    def test_reports_what_it_cannot_draw(self):
        for text, window, message in (
                ("", {}, "expected JSON"),
                ("7", {}, "expected an array"),
                ("[]", {}, "no events"),
                ("[" * 100000, {}, "no events"),
                (TRACE, {"from_ms": 20, "to_ms": 30}, "the trace has them from 0 to 9 ms"),
                (TRACE, {"from_ms": 3, "to_ms": 2}, "expected --from-ms before --to-ms"),
                (TRACE, {"to_ms": float("nan")}, "expected --from-ms before --to-ms"),
                (TRACE, {"to_ms": float("inf")}, "expected --from-ms before --to-ms"),
                (TRACE, {"width": 100}, "pass --width")):
            with self.assertRaisesRegex(draw_trace.TraceError, message):
                draw_trace.draw(text, **window)

    def test_the_program_writes_a_file_or_reports_why_not(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, picture = pathlib.Path(folder, "trace.json"), pathlib.Path(folder, "picture.svg")
            run = [sys.executable, "-B", str(TOOL), str(trace), "--from-ms", "1", "--to-ms", "6",
                   "--width", "900"]
            missing = subprocess.run(run, capture_output=True, text=True, check=False)
            self.assertEqual(missing.returncode, 1)
            self.assertIn("trace.json", missing.stderr)
            trace.write_text(TRACE, encoding="utf-8")
            subprocess.run([*run, "-o", str(picture)], check=True)
            printed = subprocess.run(run, capture_output=True, check=True).stdout
            self.assertEqual(printed, picture.read_bytes())
            self.assertEqual(len(rects(xml.etree.ElementTree.fromstring(printed), "box")), EVENTS)
            trace.write_text("{}", encoding="utf-8")
            empty = subprocess.run(run, capture_output=True, text=True, check=False)
            self.assertEqual(empty.returncode, 1)
            self.assertIn("trace.json: expected an array", empty.stderr)


if __name__ == "__main__":
    unittest.main()
