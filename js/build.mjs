// Builds gradviz/static/: a script and a style sheet for each widget, which are the files that lie in src/ itself. The
// output depends on the sources and the pinned tools only (no time stamps, no absolute paths), so that two builds can
// be compared byte by byte.
import { build } from "esbuild";
import { minify } from "terser";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = join(here, "../gradviz/static");

// The bundle lies in every widget of every saved notebook, so what is written often is written short.
// Builtins: each gets a name of ours, which the minifier makes a letter of.
const builtins = {
  Math: ["max", "min", "round", "floor", "ceil", "abs"],
  Number: ["isNaN", "isFinite"],
  globalThis: ["Float32Array", "Uint8Array", "Uint32Array", "Map", "Set", "String", "clearTimeout", "setTimeout", "getComputedStyle"],
  Object: ["assign", "entries"],
  Array: ["from"],
};
const alias = (name) => `$${name}`;
const short = {
  name: "builtins",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^builtins$/ }, ({ path }) => ({ path, namespace: "builtins" }));
    onLoad({ filter: /.*/, namespace: "builtins" }, () => ({
      contents: Object.entries(builtins)
        .map(([owner, names]) => `export const { ${names.map((name) => `${name}: ${alias(name)}`).join(", ")} } = ${owner};`)
        .join("\n"),
    }));
  },
};
const aliases = Object.entries(builtins).flatMap(([owner, names]) =>
  names.map((name) => [owner === "globalThis" ? name : `${owner}.${name}`, alias(name)]),
);

// Properties: Python writes no camelCase, so what is written so and neither browser nor host knows is ours alone. What
// is also a text somewhere stays as it is, and so does what names a data attribute of the page; functions of a module have
// short names anyway.
const read = (folder, ending) => {
  const files = readdirSync(folder, { recursive: true }).filter((file) => file.endsWith(ending));
  return files.map((file) => readFileSync(join(folder, file), "utf8")).join("\n");
};
const wordsOf = (text) => new Set(text.match(/[\w$]+/g));
const source = read(`${here}src`, ".ts");
const libraries = wordsOf(["typescript/lib", "@anywidget/types"].map((name) => read(`${here}node_modules/${name}`, ".d.ts")).join("\n"));
const texts = wordsOf(source.match(/(["'`])\w+\1/g).join("\n"));
const exported = wordsOf(source.match(/export (?:function|const) \w+/g).join("\n"));
const ours = [...wordsOf(source)].filter((word) => /^(?!gv|jp)[a-z]+[A-Z]/.test(word) && ![libraries, texts, exported].some((words) => words.has(word))).sort();
// Of one word, by hand: no message, trait, style or other script sees these.
ours.push("always", "chips", "choice", "deselect", "extent", "members", "overview", "schedule", "survey");

const entries = (ending) => readdirSync(`${here}src`).filter((file) => file.endsWith(ending)).sort().map((file) => `src/${file}`);
const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: entries(".ts"),
  outdir: out,
  write: false,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  plugins: [short],
  inject: ["builtins"],
  define: Object.fromEntries(aliases),
  mangleProps: new RegExp(`^(${ours.join("|")})$`),
});
mkdirSync(out, { recursive: true });
for (const { path, text } of outputFiles) {
  // What one minifier writes the other makes shorter still: functions that are called once go where they are called, and
  // those without `this`, of which none here is made with `new`, become arrows.
  const { code } = await minify(text, { module: true, ecma: 2020, compress: { passes: 4, keep_fargs: false, unsafe: true, unsafe_arrows: true }, format: { ecma: 2020 } });
  writeFileSync(join(out, basename(path)), code);
}
await build({
  absWorkingDir: here,
  entryPoints: entries(".css"),
  outdir: out,
  bundle: true,
  // The oldest browsers that read what the script reads; esbuild adds the prefixes that these need.
  target: ["chrome111", "firefox113", "safari16.4"],
  minify: true,
  charset: "utf8",
  logLevel: "warning",
});
