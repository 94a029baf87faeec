// The difference of two texts, line by line: what an edit changes, before it is sent.

const LINES_MAX = 2000; // beyond this the whole is shown as removed and added

/** [{sign: " " | "-" | "+", line}] */
export function diffLines(before, after) {
  const old = before.split("\n"), young = after.split("\n");
  if (old.length > LINES_MAX || young.length > LINES_MAX) {
    return [...old.map((line) => ({ sign: "-", line })), ...young.map((line) => ({ sign: "+", line }))];
  }
  const common = longestCommon(old, young);
  const rows = [];
  let i = 0, j = 0;
  while (i < old.length || j < young.length) {
    if (i < old.length && j < young.length && old[i] === young[j]) {
      rows.push({ sign: " ", line: old[i] });
      i += 1; j += 1;
    } else if (j < young.length && (i === old.length || common[i][j + 1] > common[i + 1][j])) {
      rows.push({ sign: "+", line: young[j] });
      j += 1;
    } else {
      rows.push({ sign: "-", line: old[i] });
      i += 1;
    }
  }
  return rows;
}

/** common[i][j]: how many lines old[i:] and young[j:] share, in order. */
function longestCommon(old, young) {
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(young.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = young.length - 1; j >= 0; j -= 1) {
      common[i][j] = old[i] === young[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  return common;
}
