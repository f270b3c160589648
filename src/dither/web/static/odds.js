// What a mechanism's integers mean: how often a report fits an answer, and which answers a report fits.

const little = (bytes, from, to) => {
  let n = 0n;
  for (let i = to - 1; i >= from; i--) n = (n << 8n) | BigInt(bytes[i]);
  return n;
};
const bit = (report, cell) => ((report[cell >> 3] >> (cell & 7)) & 1) === 1;
const odd = (n) => { let parity = 0; for (; n; n &= n - 1) parity ^= 1; return parity; };

/** How often a report fits its sender's answer, and how often that of somebody with another one; null where "fits" says little. */
export function odds(m) {
  const all = 2 ** m.threshold_bits;
  switch (m.name) {
    case 'grr': return { same: 1 - ((m.cells - 1) * m.other) / all, other: m.other / all };
    case 'sue': case 'oue': return { same: m.true_set / all, other: m.other_set / all };
    case 'olh': return { same: 1 - ((m.buckets - 1) * m.other) / all, other: 1 / m.buckets };
    case 'hadamard': return { same: 1 - m.flip / all, other: 0.5 };
    case 'subset': {
      const covering = Math.floor((all - (m.cells - m.size) * m.missing) / m.size), same = (m.size * covering) / all;
      return { same, other: (same * (m.size - 1) + (1 - same) * m.size) / (m.cells - 1) };
    }
    default: return null;
  }
}

/** Whether a report fits an answer. */
export function fits(m, report, cell) {
  switch (m.name) {
    case 'grr': return little(report, 0, report.length) === BigInt(cell);
    case 'sue': case 'oue': case 'subset': return bit(report, cell);
    case 'olh': {
      const hash = ((little(report, 0, 4) * BigInt(cell) + little(report, 4, 8)) & 0xffffffffn) >> 16n;
      return (hash * BigInt(m.buckets)) >> 16n === little(report, 8, report.length);
    }
    case 'hadamard': {
      const bits = (count) => 32 - Math.clz32(count - 1), said = Number(little(report, 0, report.length));
      const at = (Math.floor(cell / m.columns) << bits(m.columns)) | cell % m.columns;
      return odd((said >> 1) & at) === (said & 1);
    }
    default: return false;
  }
}
