#!/usr/bin/env python3
"""Draws a window of a trace (docs/formats/trace.md) as an SVG picture.

  tools/draw_trace.py trace.json --from-ms 1200 --to-ms 1240 > picture.svg

The picture has one row per track or lane and one box per event, colored by kind; the tooltip of a box has its
details. The picture follows the reader's light or dark theme. Without --from-ms and --to-ms it shows the
whole trace, which is rarely readable; a few tens of milliseconds are. The trace of a program that died is
drawn up to its last complete line.
"""

import argparse
import json
import math
import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROW_HEIGHT, ROW_GAP, INSET = 22, 4, 4  # INSET: how much lower a box is for each box around it
FONT_SIZE, CHARACTER_WIDTH = 11, 6.3  # an upper estimate: the reader's font is unknown here
MARGIN, AXIS_HEIGHT, LEGEND_HEIGHT = 10, 26, 20
MIN_WIDTH = 0.6  # of a box, so that a short event stays visible
TICK_DISTANCE = 90  # minimum, in pixels

# Of medium lightness, so that they are visible on white and on black. A label is black or white, whichever
# has more contrast.
COLORS = {"step": "#98a2b3", "demand": "#2f6fbf", "speculation": "#8fb8e8", "wait": "#d1495b"}
COMPUTE_COLORS = ["#2a9d78", "#e3a008", "#8e6bbf", "#b5793c", "#5fb3b3", "#c76fa3", "#7f9a3a", "#a3a3a3"]
LEGEND_NAMES = {"step": "step", "demand": "read on demand", "speculation": "speculative read", "wait": "wait"}

STYLE = """
  text { font: %dpx system-ui, 'Helvetica Neue', Arial, sans-serif; fill: #1f2328 }
  .paper { fill: #ffffff } .row { fill: #f3f5f8 } .grid { stroke: #d5dae1 } .quiet { fill: #59636e }
  .on-dark { fill: #ffffff } .on-light { fill: #101418 } .label { pointer-events: none }
  .dropped { stroke: #d1495b; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .paper { fill: #0d1117 } .row { fill: #161b22 } .grid { stroke: #30363d }
    .quiet { fill: #9198a1 } .on-dark { fill: #ffffff } .on-light { fill: #101418 }
  }
""" % FONT_SIZE
NOT_IN_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TraceError(Exception):
    pass


def read_events(text):
    """The events of a trace: an array, closed or not, or an object with "traceEvents"."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = events_of_whole_lines(text)
    if isinstance(document, dict):
        document = document.get("traceEvents")
    if not isinstance(document, list):
        raise TraceError("expected an array of trace events, or an object with \"traceEvents\"")
    return [event for event in document if isinstance(event, dict)]


def events_of_whole_lines(text):
    if not text.startswith("["):
        raise TraceError("expected JSON, an array of trace events")
    events = []
    for line in text[1:].splitlines():
        try:
            events.append(json.loads(line.strip().rstrip(",")))
        except (ValueError, RecursionError):
            continue  # the first line, an empty one, or the last one, torn
    return events


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


def row_of(event):
    return (str(event.get("pid")), str(event.get("tid")))


def arguments_of(event):
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


class Box:
    """A complete event: times in milliseconds."""

    def __init__(self, event):
        self.name = str(event.get("name", ""))
        self.kind = str(event.get("cat", ""))
        self.row = row_of(event)
        self.begin = event["ts"] / 1000
        self.end = (event["ts"] + max(event["dur"], 0)) / 1000
        self.arguments = arguments_of(event)
        self.depth = 0  # boxes of its row that enclose it

    def color_key(self):
        return (self.kind, "" if self.kind in COLORS else self.name)

    def labels(self):
        """Labels for the box, the most informative first."""
        layer, expert = self.arguments.get("layer"), self.arguments.get("expert")
        if expert is not None:
            return [f"{layer}:{expert}"]
        return [self.name] if layer is None else [f"{self.name}, layer {layer}", self.name, f"{layer}"]

    def tooltip(self):
        duration = duration_text(self.end - self.begin)
        lines = [self.name, f"{self.begin:.3f} ms to {self.end:.3f} ms: {duration}"]
        return "\n".join(lines + [f"{key}: {value}" for key, value in self.arguments.items()])


class Trace:
    def __init__(self, events):
        complete = [e for e in events
                    if e.get("ph") == "X" and is_number(e.get("ts")) and is_number(e.get("dur"))]
        # An enclosing box comes before the boxes in it.
        self.boxes = sorted((Box(event) for event in complete), key=lambda box: (box.begin, -box.end))
        self.drops = [(e["ts"] / 1000, arguments_of(e)) for e in events
                      if e.get("ph") == "i" and e.get("cat") == "dropped" and is_number(e.get("ts"))]
        self.row_names, self.row_places = {}, {}
        for event in events:
            row, arguments = row_of(event), arguments_of(event)
            if event.get("ph") == "M" and event.get("name") == "thread_name":
                self.row_names[row] = str(arguments.get("name", ""))
            elif event.get("ph") == "M" and event.get("name") == "thread_sort_index":
                place = arguments.get("sort_index")
                self.row_places[row] = place if is_number(place) else 0
        for box in self.boxes:
            self.row_names.setdefault(box.row, box.row[1])
        self.find_depths()

    def find_depths(self):
        enclosing = {row: [] for row in self.row_names}
        for box in self.boxes:
            stack = enclosing[box.row]
            while stack and stack[-1].end <= box.begin:
                stack.pop()
            box.depth = len(stack)
            stack.append(box)

    def window(self, begin, end):
        """The boxes that have some of their time, or their only moment, in it."""
        return [box for box in self.boxes
                if box.begin < end and box.end > begin or begin <= box.begin == box.end <= end]

    def rows_of(self, boxes):
        """The rows of a picture, in order: all tracks, and those lanes ("read 3") that have a box in it."""
        used = {box.row for box in boxes}
        rows = [row for row, name in self.row_names.items() if row in used or not re.search(r" \d+$", name)]
        return sorted(rows, key=lambda row: (self.row_places.get(row, 0), len(row[1]), row))


def duration_text(milliseconds):
    return f"{milliseconds:.3f} ms" if milliseconds >= 1 else f"{milliseconds * 1000:.3f} µs"


def text_width(text):
    return len(text) * CHARACTER_WIDTH


def xml_text(text):
    """`text` for XML, which has no way to write some characters at all."""
    return escape(NOT_IN_XML.sub("?", str(text)))


def reads_on(color):
    """The class of text on that color, by its relative luminance."""
    red, green, blue = (int(color[i:i + 2], 16) / 255 for i in (1, 3, 5))
    luminance = 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2
    return "on-light" if luminance > 0.22 else "on-dark"


def colors_for(trace):
    """The color of each kind of box: of the whole trace, so that all windows of it agree."""
    names = sorted({box.color_key() for box in trace.boxes if box.kind not in COLORS})
    colors = {(kind, ""): color for kind, color in COLORS.items()}
    return colors | {key: COMPUTE_COLORS[i % len(COMPUTE_COLORS)] for i, key in enumerate(names)}


def ticks_of(begin, end, pixels):
    """Round times (1, 2 or 5 times a power of ten apart) and the decimals that tell them apart."""
    least = (end - begin) * TICK_DISTANCE / pixels
    power = math.floor(math.log10(least))
    step = next(m * 10.0 ** power for m in (1, 2, 5, 10) if m * 10.0 ** power >= least * (1 - 1e-9))
    first, last = math.ceil(begin / step - 1e-6), math.floor(end / step + 1e-6)
    return [i * step for i in range(first, last + 1)], max(0, -math.floor(math.log10(step) + 1e-9))


class Picture:
    def __init__(self, trace, begin, end, width):
        self.trace, self.begin, self.end, self.width = trace, begin, end, width
        self.boxes = trace.window(begin, end)
        self.rows = trace.rows_of(self.boxes)
        self.colors = colors_for(trace)
        self.left = MARGIN + max(text_width(trace.row_names[row]) for row in self.rows) + 8
        self.pixels = width - MARGIN - self.left
        if self.pixels < TICK_DISTANCE:
            enough = math.ceil(self.left) + 400
            raise TraceError(f"a picture {width} pixels wide has no room: pass --width {enough}")
        self.top_of = {row: MARGIN + i * (ROW_HEIGHT + ROW_GAP) for i, row in enumerate(self.rows)}
        self.bottom = MARGIN + len(self.rows) * (ROW_HEIGHT + ROW_GAP)

    def x(self, time):
        part = (min(max(time, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return self.left + part * self.pixels

    def draw(self):
        legend, legend_bottom = self.draw_legend(self.bottom + AXIS_HEIGHT)
        height = legend_bottom + MARGIN
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:g}" '
                 f'viewBox="0 0 {self.width} {height:g}" role="img">',
                 f"<title>{self.begin:g} ms to {self.end:g} ms of a trace</title>", f"<style>{STYLE}</style>",
                 f'<rect class="paper" width="{self.width}" height="{height:g}"/>']
        for part in (self.draw_rows(), self.draw_axis(), self.draw_boxes(), self.draw_drops(), legend):
            lines += part
        return "\n".join(lines + ["</svg>"]) + "\n"

    def draw_rows(self):
        for row in self.rows:
            top = self.top_of[row]
            yield (f'<rect class="row" x="{self.left:.1f}" y="{top}" width="{self.pixels:.1f}" '
                   f'height="{ROW_HEIGHT}"/>')
            yield (f'<text x="{self.left - 8:.1f}" y="{top + 15}" text-anchor="end">'
                   f"{xml_text(self.trace.row_names[row])}</text>")

    def draw_axis(self):
        times, decimals = ticks_of(self.begin, self.end, self.pixels)
        for time in times:
            x = self.x(time)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN}" y2="{self.bottom + 2}"/>'
            words = f"{time:.{decimals}f}"
            place = min(x, self.width - 2 - text_width(words) / 2)  # the last is not cut off
            yield f'<text class="quiet" x="{place:.1f}" y="{self.bottom + 15}" text-anchor="middle">{words}</text>'
        yield (f'<text class="quiet" x="{self.left - 24:.1f}" y="{self.bottom + 15}" text-anchor="end">'
               "ms</text>")

    def draw_boxes(self):
        for box in self.boxes:
            color = self.colors[box.color_key()]
            inset = min(box.depth * INSET, ROW_HEIGHT - 6)
            top, left = self.top_of[box.row] + inset, self.x(box.begin)
            width = max(self.x(box.end) - left, MIN_WIDTH)
            width -= 0.5 if width > 3 else 0  # neighbours of one color are two
            yield (f'<rect class="box" x="{left:.2f}" y="{top}" width="{width:.2f}" '
                   f'height="{ROW_HEIGHT - inset}" fill="{color}">'
                   f"<title>{xml_text(box.tooltip())}</title></rect>")
            label = next((text for text in box.labels() if text and text_width(text) + 6 <= width), None)
            if label and inset == 0:
                yield (f'<text class="label {reads_on(color)}" x="{left + 3:.2f}" y="{top + 15}">'
                       f"{xml_text(label)}</text>")

    def draw_drops(self):
        for time, arguments in self.trace.drops:
            if not self.begin <= time <= self.end:
                continue
            x = self.x(time)
            yield (f'<line class="dropped" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN}" y2="{self.bottom}">'
                   f"<title>{xml_text(arguments.get('events', 'some'))} events dropped</title></line>")

    def draw_legend(self, top):
        """The lines, and where they end."""
        seen = {box.color_key() for box in self.boxes}
        entries = [(key[1] or LEGEND_NAMES[key[0]], self.colors[key]) for key in self.colors if key in seen]
        if any("layer" in box.arguments for box in self.boxes):
            entries.append(("numbers: layer, layer:expert", None))
        lines, x = [], self.left
        for name, color in entries:
            width = (16 if color else 0) + text_width(name) + 14
            if x > self.left and x + width > self.width - MARGIN:
                x, top = self.left, top + LEGEND_HEIGHT
            if color:
                lines.append(f'<rect class="key" x="{x:.1f}" y="{top}" width="11" height="11" '
                             f'fill="{color}"/>')
                lines.append(f'<text x="{x + 16:.1f}" y="{top + 10}">{xml_text(name)}</text>')
            else:
                lines.append(f'<text class="quiet" x="{x:.1f}" y="{top + 10}">{xml_text(name)}</text>')
            x += width
        return lines, top + LEGEND_HEIGHT


def draw(text, from_ms=None, to_ms=None, width=1200):
    """The picture of the trace in `text`, or a TraceError."""
    trace = Trace(read_events(text))
    if not trace.boxes:
        raise TraceError("the trace has no events")
    first, last = trace.boxes[0].begin, max(box.end for box in trace.boxes)
    begin = first if from_ms is None else from_ms
    end = last if to_ms is None else to_ms
    if from_ms is None and to_ms is None and begin == end:
        end = begin + 0.001
    if not (begin < end and is_number(begin) and is_number(end)):
        raise TraceError(f"expected --from-ms before --to-ms, found {begin:g} and {end:g}")
    if not trace.window(begin, end):
        raise TraceError(f"no events from {begin:g} to {end:g} ms; "
                         f"the trace has them from {first:g} to {last:g} ms")
    return Picture(trace, begin, end, width).draw()


def main():
    parser = argparse.ArgumentParser(description="Draws a window of a trace as an SVG picture.")
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--from-ms", type=float, help="where the picture begins (default: the first event)")
    parser.add_argument("--to-ms", type=float, help="where it ends (default: the last event)")
    parser.add_argument("--width", type=int, default=1200, help="in pixels (default: %(default)s)")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: standard output")
    options = parser.parse_args()
    try:
        text = options.trace.read_text(encoding="utf-8", errors="replace")
        picture = draw(text, options.from_ms, options.to_ms, options.width)
        if options.output:
            options.output.write_text(picture, encoding="utf-8")
        else:
            sys.stdout.buffer.write(picture.encode("utf-8"))
    except (OSError, TraceError) as error:
        print(f"{options.trace}: {error}" if isinstance(error, TraceError) else error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
