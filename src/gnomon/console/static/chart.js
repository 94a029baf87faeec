// Charts as SVG, with real axes and units; coloured by the theme.

import { html, useEffect, useRef, useState } from "./ui.js";
import { local } from "./words.js";

const WIDTH_FIRST = 600, WIDTH_LEAST = 240, HEIGHT = 190, LEFT = 66, RIGHT = 10, TOP = 12, BOTTOM = 24;

/** How wide the chart may be: texts keep their size, so a narrow one has fewer of them. */
function useWidth() {
  const element = useRef(null);
  const [width, setWidth] = useState(WIDTH_FIRST);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(WIDTH_LEAST, Math.floor(entry.contentRect.width))));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** A few round numbers from 0 to the largest. */
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2, 5].map((part) => part * power).find((size) => most / size <= 5) || power * 10;
  const found = [];
  for (let value = 0; value <= most + step * 0.999; value += step) found.push(Number(value.toPrecision(6)));
  return found;
}

/** How many times stand from one text to the next. */
const between = (times, width) => Math.max(1, Math.ceil(times.length / Math.max(2, Math.floor(width / 110))));

const clock = (at, isLong) => { const text = local(at); return isLong ? text.slice(5, 16) : text.slice(11, 16); };

function Axes({ times, y, values, format, width }) {
  const isLong = times.length > 1 && Date.parse(times[times.length - 1]) - Date.parse(times[0]) > 86400e3 * 1.5;
  const every = between(times, width);
  const x = (index) => LEFT + ((index + 0.5) * (width - LEFT - RIGHT)) / times.length;
  return html`<g>${values.map((value) => html`<line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)} /><text x=${LEFT - 8} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
    ${times.map((at, index) => index % every === 0 && html`<text x=${x(index)} y=${HEIGHT - 6} text-anchor="middle">${clock(at, isLong)}</text>`)}</g>`;
}

const frame = (label, width, children) => html`<svg class="chart" width=${width} height=${HEIGHT} role="img" aria-label=${label}>${children}</svg>`;

/** series: [{name, tone, values}], one value for each time; null where there is none. */
export function Lines({ label, times, series, format }) {
  const [element, width] = useWidth();
  const most = Math.max(0, ...series.flatMap((one) => one.values.filter((value) => value !== null)));
  const marks = ticks(most), top = marks[marks.length - 1];
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const x = (index) => LEFT + ((index + 0.5) * (width - LEFT - RIGHT)) / times.length;
  const path = (values) => values.map((value, index) => (value === null ? "" : `${index && values[index - 1] !== null ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}h.01`)).join("");
  const isAlone = (values, index) => values[index] !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
  const dots = (one) => one.values.map((value, index) => isAlone(one.values, index) && html`<circle class=${`bar ${one.tone || ""}`} cx=${x(index)} cy=${y(value)} r="2.5" />`);
  return html`<div ref=${element}>${frame(label, width, html`<${Axes} times=${times} y=${y} values=${marks} format=${format} width=${width} />${series.map((one) => html`<path class=${`line ${one.tone || ""}`} d=${path(one.values)} stroke-linecap="round" />${dots(one)}`)}`)}
    <${Legend} series=${series} /></div>`;
}

/** Bars upon each other; `href(index)` makes them links. */
export function Bars({ label, times, series, format, titles, href }) {
  const [element, width] = useWidth();
  const sums = times.map((_, index) => series.reduce((sum, one) => sum + one.values[index], 0));
  const marks = ticks(Math.max(0, ...sums)), top = marks[marks.length - 1];
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const slot = (width - LEFT - RIGHT) / times.length, thick = Math.max(0.5, slot - (slot > 6 ? 2 : slot > 2 ? 0.6 : 0));
  const column = (index) => {
    let below = 0;
    const parts = series.map((one) => {
      const value = one.values[index], from = below;
      below += value;
      return value > 0 && html`<rect class=${`bar ${one.tone || ""}`} x=${LEFT + index * slot} width=${thick} y=${y(below)} height=${Math.max(1, y(from) - y(below))} />`;
    });
    const told = html`<g><title>${titles ? titles(index) : `${local(times[index])}: ${format(sums[index])}`}</title>${parts}</g>`;
    return href?.(index) ? html`<a href=${href(index)}>${told}</a>` : told;
  };
  return html`<div ref=${element}>${frame(label, width, html`<${Axes} times=${times} y=${y} values=${marks} format=${format} width=${width} />${times.map((_, index) => sums[index] > 0 && column(index))}`)}
    ${series.length > 1 && html`<${Legend} series=${series} />`}</div>`;
}

const Legend = ({ series }) => html`<div class="legend">${series.map((one) => html`<span><i class=${`swatch ${one.tone || ""}`}></i>${one.name}</span>`)}</div>`;

/** rows: names from below; cells[column][row] is a count; darker is more. */
export function HeatMap({ label, times, rows, cells }) {
  const [element, width] = useWidth();
  const most = Math.max(1, ...cells.flat());
  const slot = (width - LEFT - RIGHT) / times.length, height = (HEIGHT - TOP - BOTTOM) / rows.length;
  const shade = (count) => 0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most));
  const top = (row) => HEIGHT - BOTTOM - (row + 1) * height;
  const isLong = Date.parse(times[times.length - 1]) - Date.parse(times[0]) > 86400e3 * 1.5;
  return html`<div ref=${element}>${frame(label, width, html`
    ${rows.map((name, row) => row % Math.ceil(rows.length / 8) === 0 && html`<text x=${LEFT - 8} y=${top(row) + height / 2 + 4} text-anchor="end">${name}</text>`)}
    ${times.map((at, column) => column % between(times, width) === 0 && html`<text x=${LEFT + (column + 0.5) * slot} y=${HEIGHT - 6} text-anchor="middle">${clock(at, isLong)}</text>`)}
    ${cells.map((counts, column) => counts.map((count, row) => count > 0 && html`<rect class="bar" opacity=${shade(count).toFixed(2)} x=${LEFT + column * slot} y=${top(row)} width=${Math.max(0.5, slot - 0.4)} height=${height - 0.6}><title>${local(times[column])}, ${rows[row]}: ${count}</title></rect>`))}`)}</div>`;
}
