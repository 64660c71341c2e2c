// JSON whose integers are right beyond 2^53: JSON.parse would round them without a word.

// Sixteen digits or more may be too long for a double; shorter ones never are.
const LONG = /\d{16}/;
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null|NaN|-?Infinity))/y;
const WORDS = { true: true, false: false, null: null, NaN, Infinity, '-Infinity': -Infinity };

/** What `text` says; integers that a double cannot hold are BigInts. Throws SyntaxError. */
export function parseJson(text) {
  if (!LONG.test(text) && !/NaN|Infinity/.test(text)) return JSON.parse(text);
  const reader = new Reader(text);
  const value = reader.value();
  reader.end();
  return value;
}

/** The same for text as people type it: brackets around a list of numbers may be missing. */
export function parseTyped(text) {
  const trimmed = text.trim();
  if (trimmed.startsWith('[')) return parseJson(trimmed);
  return parseJson(`[${trimmed.split(/[\s,;]+/).filter(Boolean).join(',')}]`);
}

/** `value` as JSON; BigInts as integers. */
export function writeJson(value, indent) {
  const marked = JSON.stringify(
    value, (_, one) => (typeof one === 'bigint' ? `\u0000${one}\u0000` : one), indent,
  );
  return marked.replace(/"\\u0000(-?\d+)\\u0000"/g, '$1');
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  next() {
    TOKEN.lastIndex = this.at;
    const match = TOKEN.exec(this.text);
    if (!match) throw new SyntaxError(`This is no JSON at character ${this.at + 1}.`);
    this.at = TOKEN.lastIndex;
    return match;
  }

  peek() {
    const at = this.at;
    const [, sign] = this.next();
    this.at = at;
    return sign;
  }

  value() {
    const [, sign, text, number, word] = this.next();
    if (text !== undefined) return JSON.parse(text);
    if (number !== undefined) return readNumber(number);
    if (word !== undefined) return WORDS[word];
    if (sign === '[') return this.list();
    if (sign === '{') return this.members();
    throw new SyntaxError(`'${sign}' has no place at character ${this.at}.`);
  }

  list() {
    const items = [];
    if (this.peek() === ']') return this.next() && items;
    for (;;) {
      items.push(this.value());
      if (this.separator(']')) return items;
    }
  }

  members() {
    const pairs = [];
    if (this.peek() === '}') return this.next() && {};
    for (;;) {
      const name = this.value();
      if (this.next()[1] !== ':') throw new SyntaxError(`A colon is missing at character ${this.at}.`);
      pairs.push([name, this.value()]);
      if (this.separator('}')) return Object.fromEntries(pairs);
    }
  }

  separator(end) {
    const [, sign] = this.next();
    if (sign === end) return true;
    if (sign === ',') return false;
    throw new SyntaxError(`A comma is missing at character ${this.at}.`);
  }

  end() {
    if (this.text.slice(this.at).trim()) {
      throw new SyntaxError(`There is something after the end, at character ${this.at + 1}.`);
    }
  }
}

function readNumber(text) {
  const number = Number(text);
  return /^-?\d+$/.test(text) && !Number.isSafeInteger(number) ? BigInt(text) : number;
}
