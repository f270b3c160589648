// Which answers a report fits: what the mechanisms' reports mean, for showing them in words.

const little = (bytes, from, to) => bytes.subarray(from, to).reduceRight((n, byte) => (n << 8n) | BigInt(byte), 0n);
const bit = (report, cell) => ((report[cell >> 3] >> (cell & 7)) & 1) === 1;
const odd = (n) => { let parity = 0; for (; n; n &= n - 1) parity ^= 1; return parity; };
const bitsFor = (count) => 32 - Math.clz32(count - 1);

const RULES = {
  grr: () => (report, cell) => little(report, 0, report.length) === BigInt(cell),
  sue: () => bit,
  oue: () => bit,
  subset: () => bit,
  olh: (m) => (report, cell) => {
    const hash = ((little(report, 0, 4) * BigInt(cell) + little(report, 4, 8)) & 0xffffffffn) >> 16n;
    return (hash * BigInt(m.buckets)) >> 16n === little(report, 8, report.length);
  },
  hadamard: (m) => (report, cell) => {
    const said = Number(little(report, 0, report.length));
    const at = (Math.floor(cell / m.columns) << bitsFor(m.columns)) | cell % m.columns;
    return odd((said >> 1) & at) === (said & 1);
  },
};

/** (report, cell) -> whether the report fits the answer; null for mechanisms whose reports speak for no single answer. */
export const fitting = (m) => (Object.hasOwn(RULES, m.name) ? RULES[m.name](m) : null);
