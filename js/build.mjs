// Builds gradviz/static/: a script and a style sheet for each widget, which are the files that lie in src/ itself. The
// output depends on the sources and the pinned tools only (no time stamps, no absolute paths), so that two builds can
// be compared byte by byte.
import { build } from "esbuild";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const read = (path) => readFileSync(here + path, "utf8");

// d3-array is one file in which nothing says that these calls can go with what they make. It is 2 kB that nobody uses.
const d3 = {
  name: "d3-array",
  setup({ onLoad }) {
    onLoad({ filter: /d3-array\.mjs$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(/(?<== )(?=(Blur2|shuffler)\()/g, "/* @__PURE__ */ "),
    }));
  },
};

// The bundle lies in every widget of every saved notebook, so what is written often is written short.
// Builtins: each gets a name of ours, which the minifier makes a letter of.
const builtins = ["Math.max", "Math.min", "Math.round", "Math.floor", "Math.ceil", "Math.abs", "Number.isNaN", "Number.isFinite"];
const classes = ["Float32Array", "Uint8Array", "Uint32Array", "Map", "Set"];
const alias = (name) => `$${name.replace(".", "_")}`;
const short = {
  name: "builtins",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^builtins$/ }, ({ path }) => ({ path, namespace: "builtins" }));
    onLoad({ filter: /.*/, namespace: "builtins" }, () => ({
      // Not by their own names: these would be replaced here too.
      contents: [...builtins, ...classes].map((name) => `export const ${alias(name)} = globalThis["${name.split(".").join('"]["')}"];`).join("\n"),
    }));
  },
};

// Members of our own: names in camelCase which no library of the language or the page has. What comes from Python has
// underscores, and data attributes begin with jp or gv.
function members() {
  const words = (text, pattern) => new Set(text.match(pattern));
  const known = new Set();
  for (const file of readdirSync(`${here}node_modules/typescript/lib`)) {
    if (!/^lib\..*\.d\.ts$/.test(file)) continue;
    for (const word of words(read(`node_modules/typescript/lib/${file}`), /\b[a-z]+[A-Z]\w*/g)) known.add(word);
  }
  const sources = readdirSync(`${here}src`, { recursive: true }).filter((file) => file.endsWith(".ts")).sort();
  const source = sources.map((file) => read(`src/${file}`)).join("\n");
  // What a module exports is reached as a member of `import * as`, and has a short name anyway.
  for (const word of words(source, /(?<=export (function|const|class) )\w+/g)) known.add(word);
  // What stands in quotes may be the name of a member too.
  for (const word of words(source, /(?<=["'`])\w+(?=["'`])/g)) known.add(word);
  return [...words(source, /\b(?!jp|gv)[a-z]+[A-Z]\w*/g)].filter((word) => !known.has(word)).sort();
}

const entries = (ending) => readdirSync(`${here}src`).filter((file) => file.endsWith(ending)).sort().map((file) => `src/${file}`);
await build({
  absWorkingDir: here,
  entryPoints: entries(".ts"),
  outdir: "../gradviz/static",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  plugins: [d3, short],
  inject: ["builtins"],
  define: Object.fromEntries([...builtins, ...classes].map((name) => [name, alias(name)])),
  mangleProps: new RegExp(`^(${members().join("|")})$`),
});
await build({
  absWorkingDir: here,
  entryPoints: entries(".css"),
  outdir: "../gradviz/static",
  bundle: true,
  // The oldest browsers that read what the script reads; esbuild adds the prefixes that these need.
  target: ["chrome111", "firefox113", "safari16.4"],
  minify: true,
  charset: "utf8",
  logLevel: "warning",
});
