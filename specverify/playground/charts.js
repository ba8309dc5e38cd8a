"use strict";
/* Small pictures as inline SVG, drawn at the width that is there, so that text stays readable on a phone. */
const charts = {
  HEIGHT: 220,
  PAD: { left: 40, right: 14, top: 22, bottom: 40 },

  /* Speed-up over k. points: [{k, theory, spread, simulated}]; best, current: k. */
  speedup(box, { points, best, current }) {
    const frame = charts.frame(box, [0, points.length], charts.nice(Math.max(1.25, ...points.map((p) => Math.max(p.theory + p.spread, p.simulated)))));
    const { x, y } = frame;
    const line = points.map((p) => `${x(p.k)},${y(p.theory)}`).join(" ");
    const up = points.map((p) => `${x(p.k)},${y(p.theory + p.spread)}`);
    const down = points.map((p) => `${x(p.k)},${y(Math.max(0, p.theory - p.spread))}`).reverse();
    const at = (k) => points.find((p) => p.k === k);
    const dots = points.map((p) => `<circle class="simulated" cx="${x(p.k)}" cy="${y(p.simulated)}" r="3"><title>k ${p.k}: simulated ${p.simulated.toFixed(2)}x</title></circle>`).join("");
    let marks = `<line class="now" x1="${x(current)}" x2="${x(current)}" y1="${frame.top}" y2="${y(0)}"/>`;
    if (at(best)) {
      const anchor = best > points.length * 0.6 ? "end" : best < points.length * 0.15 ? "start" : "middle";
      marks += `<circle class="best" cx="${x(best)}" cy="${y(at(best).theory)}" r="7"/>
        <text class="strong" x="${x(best)}" y="${frame.top - 8}" text-anchor="${anchor}">best k = ${best}, ${at(best).theory.toFixed(2)}x</text>
        <line class="drop" x1="${x(best)}" x2="${x(best)}" y1="${frame.top - 4}" y2="${y(at(best).theory) - 8}"/>`;
    } else {
      const text = best === 0 ? "no k pays: plain decoding is fastest" : `best k = ${best}, off the chart`;
      marks += `<text class="strong" x="${frame.right}" y="${frame.top - 8}" text-anchor="end">${text}</text>`;
    }
    const shown = points.filter((p) => frame.width > 420 || p.k === 1 || p.k % 2 === 0).map((p) => [p.k, p.k]);
    box.innerHTML = frame.svg(
      `<polygon class="band" points="${[...up, ...down].join(" ")}"/>
       <line class="one" x1="${frame.left}" x2="${frame.right}" y1="${y(1)}" y2="${y(1)}"/>
       <polyline class="theory" points="${line}"/>${dots}${marks}`,
      shown, "draft tokens k", (v) => `${v}x`,
      `Speed-up over the number of draft tokens. Best k ${best}. At k ${current}: theory ${at(current).theory.toFixed(2)}, simulated ${at(current).simulated.toFixed(2)}.`);
  },

  /* How often a round commits 1, 2, ... tokens. theory, simulated: shares. */
  tokens(box, { theory, simulated }) {
    const frame = charts.frame(box, [0.4, theory.length + 0.6], charts.nice(Math.max(0.1, ...theory, ...simulated)));
    const { x, y } = frame;
    const half = Math.min(18, (x(2) - x(1)) * 0.36);
    const bars = theory.map((share, i) => `
      <rect class="seen" x="${x(i + 1) - half}" width="${2 * half}" y="${y(simulated[i])}" height="${y(0) - y(simulated[i])}"><title>${i + 1} tokens: simulated ${simulated[i].toFixed(3)}</title></rect>
      <line class="wanted" x1="${x(i + 1) - half - 3}" x2="${x(i + 1) + half + 3}" y1="${y(share)}" y2="${y(share)}"><title>${i + 1} tokens: theory ${share.toFixed(3)}</title></line>`);
    const every = theory.length > 9 && frame.width < 420 ? 2 : 1;
    const labels = theory.map((_, i) => [i + 1, i + 1]).filter(([n]) => (n - 1) % every === 0);
    box.innerHTML = frame.svg(bars.join(""), labels, "tokens in a round", (v) => charts.percent(v),
      `Share of rounds by tokens committed: ${theory.map((share, i) => `${i + 1}: theory ${charts.percent(share)}, simulated ${charts.percent(simulated[i])}`).join("; ")}.`);
  },

  /* Mean tokens per pass as rounds go by. means: running means; expected, deviation: of one round. */
  running(box, { means, expected, deviation }) {
    const top = charts.nice(Math.max(...means, expected + 2 * deviation));
    // Logarithmic: the first rounds scatter, and thousands of quiet ones should not push them into the axis.
    const frame = charts.frame(box, [0, Math.log10(means.length)], top);
    const { y } = frame, x = (n) => frame.x(Math.log10(n));
    const count = Math.min(means.length, 250);
    const places = [...new Set(Array.from({ length: count }, (_, i) => Math.round(means.length ** (i / (count - 1)))))];
    const edge = (sign) => places.map((n) => `${x(n)},${y(Math.min(top, Math.max(0, expected + (sign * 2 * deviation) / Math.sqrt(n))))}`);
    const ticks = means.length < 100 ? [1, 2, 5, 10, means.length] : [1, 10, 100, 1000, 10000].filter((n) => n <= means.length);
    const labels = ticks.map((n) => [Math.log10(n), n.toLocaleString("en")]);
    box.innerHTML = frame.svg(
      `<polygon class="band" points="${[...edge(1), ...edge(-1).reverse()].join(" ")}"/>
       <line class="theory" x1="${frame.left}" x2="${frame.right}" y1="${y(expected)}" y2="${y(expected)}"/>
       <polyline class="means" points="${places.map((n) => `${x(n)},${y(means[n - 1])}`).join(" ")}"/>`,
      labels, "rounds, logarithmic", (v) => `${v}`,
      `Running mean of tokens per target pass: ${means[means.length - 1].toFixed(2)} after ${means.length} rounds, theory ${expected.toFixed(2)}.`);
  },

  frame(box, [from, to], top) {
    const width = Math.max(240, box.clientWidth), { left, right, top: above, bottom } = charts.PAD;
    const x = (value) => Math.round(10 * (left + ((value - from) / (to - from || 1)) * (width - left - right))) / 10;
    const y = (value) => Math.round(10 * (above + (1 - value / top) * (charts.HEIGHT - above - bottom))) / 10;
    const step = charts.tick(top);
    const svg = (content, labels, title, format, description) => {
      let axes = "";
      for (let value = 0; value <= top + 1e-9; value += step) {
        axes += `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(value)}" y2="${y(value)}"/>
          <text x="${left - 6}" y="${y(value) + 4}" text-anchor="end">${format(Math.round(value * 1000) / 1000)}</text>`;
      }
      for (const [at, label] of labels) {
        const anchor = x(at) > width - right - 12 ? "end" : "middle";
        axes += `<text x="${anchor === "end" ? width - right + 6 : x(at)}" y="${charts.HEIGHT - bottom + 16}" text-anchor="${anchor}">${label}</text>`;
      }
      axes += `<text x="${(left + width - right) / 2}" y="${charts.HEIGHT - 3}" text-anchor="middle">${title}</text>`;
      return `<svg viewBox="0 0 ${width} ${charts.HEIGHT}" width="${width}" height="${charts.HEIGHT}" role="img" aria-label="${description}">${axes}${content}</svg>`;
    };
    return { x, y, svg, width, left, right: width - right, top: above };
  },

  /* The next round number above: the axis ends on a tick. */
  nice(value) {
    const step = charts.tick(value);
    return Math.ceil(value / step - 1e-9) * step;
  },

  tick(top) {
    const rough = top / 4, power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  },

  percent: (share) => `${Math.round(share * 100)}%`,
};
