// Which stage can wake which, from what they watch and write; where it goes round in a circle.

const related = (one, other) => one === "" || other === "" || one === other || one.startsWith(`${other}/`) || other.startsWith(`${one}/`);

/** No `watch` is everything; no `writes` is nothing. */
const wakes = (from, to) => from.writes.some((path) => !to.watch.length || to.watch.some((seen) => related(path, seen)));

/** [{from, to, loop}] among stages of one kind; `loop`: it is a part of a circle. */
export function edgesOf(stages) {
  const edges = [];
  for (const from of stages) {
    for (const to of stages) {
      if (from.kind !== to.kind || !wakes(from, to)) continue;
      if (from.name !== to.name || from.own_echo) edges.push({ from: from.name, to: to.name });
    }
  }
  const reach = (start) => {
    const seen = new Set(), next = [start];
    while (next.length) {
      const name = next.pop();
      for (const edge of edges) if (edge.from === name && !seen.has(edge.to)) { seen.add(edge.to); next.push(edge.to); }
    }
    return seen;
  };
  const reached = new Map(stages.map((stage) => [stage.name, reach(stage.name)]));
  return edges.map((edge) => ({ ...edge, loop: reached.get(edge.to).has(edge.from) }));
}

/** Stages in columns: each to the right of those that wake it, circles left aside. */
export function layersOf(stages, edges) {
  const depth = new Map(stages.map((stage) => [stage.name, 0]));
  for (let round = 0; round < stages.length; round += 1) {
    for (const { from, to, loop } of edges) {
      if (!loop && depth.get(to) <= depth.get(from)) depth.set(to, depth.get(from) + 1);
    }
  }
  const layers = [];
  for (const stage of stages) (layers[depth.get(stage.name)] ||= []).push(stage);
  return layers.filter(Boolean);
}
