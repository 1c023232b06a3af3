// How numbers, names and places are told in words.

const NUMBERS = new Intl.NumberFormat("en");
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

export const count = (number) => NUMBERS.format(number);

/** counted(1, "window") is `1 window`. */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** What cannot be seen, or turns the direction of writing, reads `\u202e`. */
export const printable = (text) => String(text).replace(UNPRINTABLE, escaped);

/** The same for a text of several lines. */
export const printableLines = (text) =>
  String(text).replace(UNPRINTABLE, (letter) => (letter === "\n" || letter === "\t" ? letter : escaped(letter)));

function escaped(letter) {
  if (letter in SHORT) return SHORT[letter];
  const code = letter.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

export const place = (split, row) => `${split}:${row}`;

/** Rows that no build has made do not say which lines a window shows, nor what of it is fresh. */
export const isTold = (window) => window.lines[0] > 0;

export const lines = ([first, last]) =>
  first === last ? `line ${count(first)}` : `lines ${count(first)}–${count(last)}`;

export const percent = (share) => `${Math.floor(100 * share)} %`;

export function bytes(number) {
  if (number === null || number === undefined) return null;
  if (number < 1000) return counted(number, "byte");
  return number < 1e6 ? `${(number / 1e3).toFixed(1)} KB` : `${(number / 1e6).toFixed(1)} MB`;
}

export const licenseName = (license) => (license === "NOASSERTION" ? "not known (NOASSERTION)" : license);
