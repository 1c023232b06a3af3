// Numbers, names and positions as text.

const NUMBERS = new Intl.NumberFormat("en");
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SHORT_ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

export const count = (number) => NUMBERS.format(number);

/** counted(1, "window") returns `1 window`. */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Escapes characters that are invisible or change the text direction, for example as `\u202e`. */
export const printable = (text) => String(text).replace(UNPRINTABLE, escape);

/** Like `printable`, but keeps line feeds and tabs. */
export const printableLines = (text) =>
  String(text).replace(UNPRINTABLE, (character) =>
    character === "\n" || character === "\t" ? character : escape(character));

function escape(character) {
  if (character in SHORT_ESCAPES) return SHORT_ESCAPES[character];
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

export const rowId = (split, row) => `${split}:${row}`;

/** Returns true if the row records its lines and number of fresh tokens. Rows that no build wrote may lack both. */
export const hasBuildFacts = (window) => window.lines[0] > 0;

export const lines = ([first, last]) =>
  first === last ? `line ${count(first)}` : `lines ${count(first)}–${count(last)}`;

export const percent = (fraction) => `${Math.floor(100 * fraction)}%`;

export function bytes(number) {
  if (number === null || number === undefined) return null;
  if (number < 1000) return counted(number, "byte");
  return number < 1e6 ? `${(number / 1e3).toFixed(1)} KB` : `${(number / 1e6).toFixed(1)} MB`;
}

export const licenseName = (license) => (license === "NOASSERTION" ? "unknown (NOASSERTION)" : license);
