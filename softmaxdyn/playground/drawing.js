"use strict";
/* The pictures: the triangle of three arms, and line plots. Lengths are CSS pixels. */
const Drawing = (() => {
  const HALF_ROOT_3 = Math.sqrt(3) / 2;
  const SMALLEST = 1e-4; // the least probability that the pointer can set
  const FONT = "13px system-ui, sans-serif";
  const NAMES = ["paper", "panel", "ink", "quiet", "line", "grid", "now", "pg", "npg", "rise", "reference"];
  const backgrounds = new WeakMap();

  function palette() {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  /** A 2D context of the canvas, sized to its width on the page and the density of the screen. */
  function surface(canvas, heightOf) {
    const width = Math.max(canvas.clientWidth, 120);
    const height = heightOf(width);
    const density = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * density), Math.round(height * density)];
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      canvas.style.height = `${height}px`;
    }
    const g = canvas.getContext("2d");
    g.setTransform(density, 0, 0, density, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = FONT;
    return { g, width, height, density };
  }

  // The triangle: arm 1 on top, arm 2 on the left, arm 3 on the right.

  function triangle(width) {
    const side = width - 56;
    return { left: 28, top: 26, side, height: side * HALF_ROOT_3 };
  }

  const heightOfTriangle = (width) => triangle(width).height + 52;

  const place = (t, p) => [t.left + t.side * (p[2] + p[0] / 2), t.top + t.height * (1 - p[0])];

  const raw = (t, x, y) => {
    const p1 = 1 - (y - t.top) / t.height;
    const p3 = (x - t.left) / t.side - p1 / 2;
    return [p1, 1 - p1 - p3, p3];
  };

  function inner(p) {
    const kept = p.map((value) => Math.max(value, SMALLEST));
    const total = kept.reduce((a, b) => a + b, 0);
    return kept.map((value) => value / total);
  }

  /** The policy under a point of the canvas, moved inside the triangle. */
  const policyAt = (canvas, x, y) => inner(raw(triangle(Math.max(canvas.clientWidth, 120)), x, y));

  const policyOf = (p) => Core.softmax(p.map(Math.log));

  /** dH of the region's update at a policy, to first order. */
  function rateOf(region, rewards) {
    const gain = (policy) => Core.centred(policy, rewards);
    if (region === "pg") return (policy) => Core.theorem1(policy, gain(policy), 1);
    if (region === "npg") return (policy) => Core.theorem2(policy, gain(policy), 1);
    return (policy) => Core.sampleEffect(policy)[Number(region.slice(3)) - 1];
  }

  function hatching(density, colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(8 * density);
    const g = tile.getContext("2d");
    g.fillStyle = g.strokeStyle = colour;
    g.globalAlpha = 0.16;
    g.fillRect(0, 0, tile.width, tile.height);
    g.globalAlpha = 0.75;
    g.lineWidth = 1.2 * density;
    for (const shift of [-1, 0, 1]) {
      g.beginPath();
      g.moveTo(shift * tile.width, tile.height);
      g.lineTo((shift + 1) * tile.width, 0);
      g.stroke();
    }
    return g.createPattern(tile, "repeat");
  }

  /** The part of the triangle where H rises, as a hatched canvas. */
  function hatched(t, size, rate, colour) {
    const layer = document.createElement("canvas");
    [layer.width, layer.height] = [size.width * size.density, size.height * size.density].map(Math.round);
    const g = layer.getContext("2d");
    const cell = 2;
    g.scale(size.density, size.density);
    for (let y = 0; y < size.height; y += cell) {
      for (let x = 0; x < size.width; x += cell) {
        const p = raw(t, x + cell / 2, y + cell / 2);
        if (Math.min(...p) > 0 && rate(policyOf(p)) > 1e-12) g.fillRect(x, y, cell, cell);
      }
    }
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.globalCompositeOperation = "source-in";
    g.fillStyle = hatching(size.density, colour);
    g.fillRect(0, 0, layer.width, layer.height);
    return layer;
  }

  /** dπ/dη of PG or NPG at a policy. */
  function velocity(policy, rewards, natural) {
    const advantage = Core.centred(policy, rewards);
    const delta = natural ? advantage : advantage.map((a, i) => policy.prob[i] * a);
    return Core.centred(policy, delta).map((d, i) => policy.prob[i] * d);
  }

  function arrow(g, [x, y], [dx, dy], colour, width, dashed) {
    const length = Math.hypot(dx, dy);
    if (!(length > 0.5)) return;
    const head = Math.min(3 + 2 * width, length);
    const turn = Math.atan2(dy, dx);
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.setLineDash(dashed ? [2.5 * width, 1.5 * width] : []);
    g.beginPath();
    g.moveTo(x, y);
    g.lineTo(x + dx, y + dy);
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    for (const side of [-2.6, 2.6]) {
      g.moveTo(x + dx, y + dy);
      g.lineTo(x + dx + head * Math.cos(turn + side), y + dy + head * Math.sin(turn + side));
    }
    g.stroke();
  }

  const move = (t, v) => [t.side * (v[2] + v[0] / 2), -t.height * v[0]];
  const kindsOf = (arrows) => [["pg", false], ["npg", true]].filter(([name]) => arrows === "both" || arrows === name);

  /** How far one can go from p along v and stay inside the triangle. */
  const reach = (p, v) => Math.min(...p.map((value, a) => (v[a] < 0 ? value / -v[a] : Infinity)));

  function arrowField(g, t, scene, colours) {
    const n = 9;
    const spots = [];
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n - i; j++) spots.push([i, j, n - 1 - i - j].map((k) => (k + 1 / 3) / n));
    }
    const cell = (0.8 * t.side) / n;
    g.globalAlpha = 0.7;
    for (const [name, natural] of kindsOf(scene.arrows)) {
      const moves = spots.map((p) => move(t, velocity(policyOf(p), scene.rewards, natural)));
      const largest = Math.max(...moves.map(([x, y]) => Math.hypot(x, y)));
      spots.forEach((p, i) => {
        const scale = (cell * Math.sqrt(Math.hypot(...moves[i]) / largest)) / Math.hypot(...moves[i]);
        arrow(g, place(t, p), moves[i].map((x) => x * scale), colours[name], 1.1, natural);
      });
    }
    g.globalAlpha = 1;
  }

  function outline(g, t, colours, rewards) {
    const corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((p) => place(t, p));
    g.strokeStyle = colours.quiet;
    g.lineWidth = 1.5;
    g.beginPath();
    corners.forEach(([x, y]) => g.lineTo(x, y));
    g.closePath();
    g.stroke();
    g.fillStyle = colours.ink;
    corners.forEach(([x, y], i) => {
      g.textAlign = ["center", "left", "right"][i];
      g.fillText(`${i + 1}:  r = ${rewards[i]}`, x + [0, -20, 20][i], y + [-9, 19, 19][i]);
    });
  }

  /** What does not depend on the policy, drawn once: hatching, arrows, outline. */
  function background(canvas, size, t, scene, colours) {
    const key = JSON.stringify([size.width, size.density, scene.rewards, scene.region, scene.arrows, colours]);
    const known = backgrounds.get(canvas);
    if (known?.key === key) return known.layer;
    const layer = document.createElement("canvas");
    [layer.width, layer.height] = [canvas.width, canvas.height];
    const g = layer.getContext("2d");
    g.font = FONT;
    if (scene.region !== "none") g.drawImage(hatched(t, size, rateOf(scene.region, scene.rewards), colours.rise), 0, 0);
    g.scale(size.density, size.density);
    arrowField(g, t, scene, colours);
    outline(g, t, colours, scene.rewards);
    backgrounds.set(canvas, { key, layer });
    return layer;
  }

  function disc(g, [x, y], radius, fill, edge) {
    g.beginPath();
    g.arc(x, y, radius, 0, 2 * Math.PI);
    g.lineWidth = 2;
    g.strokeStyle = edge;
    if (fill) {
      g.fillStyle = fill;
      g.fill();
    }
    g.stroke();
  }

  function cross(g, [x, y], colour) {
    g.strokeStyle = colour;
    g.lineWidth = 3;
    g.beginPath();
    for (const side of [-6, 6]) {
      g.moveTo(x - 6, y - side);
      g.lineTo(x + 6, y + side);
    }
    g.stroke();
  }

  const thinned = (rows) => {
    const stride = Math.ceil(rows.length / 1500);
    return rows.filter((_, i) => i % stride === 0 || i === rows.length - 1);
  };

  /** scene: {rewards, region, arrows, rows, reference}; the last row is the policy now. */
  function drawSimplex(canvas, scene) {
    const size = surface(canvas, heightOfTriangle);
    const { g, width } = size;
    const t = triangle(width);
    const colours = palette();
    g.drawImage(background(canvas, size, t, scene, colours), 0, 0, width, size.height);
    const row = scene.rows[scene.rows.length - 1];
    const now = place(t, row.policy.prob);
    g.strokeStyle = colours.now;
    g.lineWidth = 2;
    g.beginPath();
    thinned(scene.rows).forEach(({ policy }) => g.lineTo(...place(t, policy.prob)));
    g.lineTo(...place(t, row.after.prob));
    g.stroke();
    if (scene.reference) cross(g, place(t, scene.reference), colours.reference);
    for (const [name, natural] of kindsOf(scene.arrows)) {
      const v = velocity(row.policy, scene.rewards, natural);
      const [dx, dy] = move(t, v);
      const length = Math.min(46 / Math.hypot(dx, dy), reach(row.policy.prob, v));
      if (length > 0) arrow(g, now, [length * dx, length * dy], colours[name], 3, natural);
    }
    disc(g, place(t, row.after.prob), 5, null, colours.now);
    disc(g, now, 8, colours.now, colours.paper);
  }

  // Line plots

  function ticks([low, high], wanted) {
    const rough = (high - low) / wanted;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((k) => k * unit >= rough);
    const count = Math.floor(high / step) - Math.ceil(low / step) + 1;
    return Array.from({ length: Math.max(count, 0) }, (_, i) => (Math.ceil(low / step) + i) * step);
  }

  function span(values, least) {
    const finite = values.filter(Number.isFinite);
    const [low, high] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [0, 1];
    const pad = Math.max(0.06 * (high - low), least, 1e-9 * Math.abs(high));
    return [low - pad, high + pad];
  }

  const tickText = (x) => {
    const size = Math.abs(x);
    if (size < 1e-12) return "0";
    const text = size >= 1e-3 && size < 1e5 ? String(Number(x.toPrecision(4))) : x.toExponential(0);
    return text.replaceAll("-", "−");
  };

  function frame(g, box, xs, ys, colours, names) {
    const x = (value) => box.left + ((value - xs[0]) / (xs[1] - xs[0])) * box.width;
    const y = (value) => box.top + box.height - ((value - ys[0]) / (ys[1] - ys[0])) * box.height;
    g.strokeStyle = colours.grid;
    g.fillStyle = colours.quiet;
    g.lineWidth = 1;
    g.textAlign = "center";
    for (const value of ticks(xs, Math.max(box.width / 80, 3))) {
      g.strokeRect(x(value), box.top, 0, box.height);
      g.fillText(tickText(value), x(value), box.top + box.height + 16);
    }
    g.textAlign = "right";
    for (const value of ticks(ys, 5)) {
      g.strokeRect(box.left, y(value), box.width, 0);
      g.fillText(tickText(value), box.left - 5, y(value) + 4);
    }
    g.fillStyle = colours.ink;
    g.fillText(names[0], box.left + box.width, box.top + box.height + 33);
    g.textAlign = "left";
    g.fillText(names[1], 4, 14);
    return { x, y };
  }

  function polyline(g, { x, y }, line) {
    g.strokeStyle = line.colour;
    g.lineWidth = line.width;
    g.setLineDash(line.dash ?? []);
    g.beginPath();
    line.x.forEach((value, i) => g.lineTo(x(value), y(line.y[i])));
    g.stroke();
    g.setLineDash([]);
  }

  /** lines: [{x, y, colour, width, dash}] with colours by name; marks: [{x, y, open, colour, radius}]; least: the least span of y. */
  function drawPlot(canvas, { lines, marks = [], names, least = 1e-6, steps = false }) {
    const colours = palette();
    const { g, width, height } = surface(canvas, (w) => Math.min(0.62 * w, 300));
    const box = { left: 62, top: 24, width: width - 76, height: height - 64 };
    const all = [...lines.filter((line) => !line.dash), ...marks.map((m) => ({ x: [m.x], y: [m.y] }))];
    const across = all.flatMap((line) => line.x);
    const xs = steps ? [0, Math.max(10, ...across)] : span(across, least);
    const scale = frame(g, box, xs, span(all.flatMap((line) => line.y), least), colours, names);
    g.save();
    g.beginPath();
    g.rect(box.left, box.top, box.width, box.height);
    g.clip();
    lines.forEach((line) => polyline(g, scale, { ...line, colour: colours[line.colour] }));
    g.restore();
    for (const mark of marks) {
      const colour = colours[mark.colour ?? "now"];
      const [fill, edge] = mark.open ? [null, colour] : [colour, colours.paper];
      disc(g, [scale.x(mark.x), scale.y(mark.y)], mark.radius ?? 5, fill, edge);
    }
  }

  return { drawSimplex, drawPlot, policyAt, inner, thinned };
})();
