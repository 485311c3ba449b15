"""How long does the playground take for a frame while its point is dragged?

Drags the point of three arms in circles in a headless Chromium (no GPU: the processor draws), one move of the mouse a
frame, and prints what the page's own work took (`page.js` measures it) and how far frames lay apart.
"""

import math
from pathlib import Path

from browser import DESKTOP, PHONE, Browser, find

PAGE = Path(__file__).parents[2] / "softmaxdyn" / "playground" / "index.html"
FRAMES = 240
MEASURE = """new Promise(done => {
  const [times, busy, dragged] = [[], [], document.querySelector("#simplex")];
  const box = dragged.getBoundingClientRect();
  const fire = (kind, x, y) => dragged.dispatchEvent(new PointerEvent(kind, {
    pointerId: 1, clientX: box.left + x, clientY: box.top + y, buttons: 1, bubbles: true}));
  dragged.hasPointerCapture = () => true;
  dragged.setPointerCapture = () => {};
  let last = {...playgroundFrames};
  const frame = now => {
    const turn = times.length / 20;
    fire("pointermove", box.width * (0.5 + 0.2 * Math.cos(turn)), box.height * (0.6 + 0.2 * Math.sin(turn)));
    if (playgroundFrames.count > last.count) busy.push(playgroundFrames.busy - last.busy);
    last = {...playgroundFrames};
    times.push(now);
    if (times.length < FRAMES) requestAnimationFrame(frame);
    else done({busy, gaps: times.slice(1).map((time, i) => time - times[i])});
  };
  requestAnimationFrame(frame);
})"""


def percentile(values, share):
    """The smallest value that `share` of the values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def main():
    with Browser(find()) as browser:
        for name, size, density in (("desktop", DESKTOP, 1.0), ("phone", PHONE, 2.0)):
            browser.window(size, density=density)
            browser.open(PAGE.as_uri())
            found = browser.evaluate(MEASURE.replace("FRAMES", str(FRAMES)))
            work, gaps = found["busy"], found["gaps"]
            print(
                f"{name}: {len(work)} frames drawn; own work median {percentile(work, 0.5):.1f} ms, 99 % below "
                f"{percentile(work, 0.99):.1f} ms, longest {max(work):.1f} ms (a frame at 60 Hz: 16.7 ms); "
                f"frames {percentile(gaps, 0.5):.1f} ms apart, 99 % below {percentile(gaps, 0.99):.1f} ms"
            )


if __name__ == "__main__":
    main()
