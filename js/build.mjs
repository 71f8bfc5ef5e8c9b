// Builds the two files of gradviz/static/. The output depends on the sources and the pinned
// esbuild only (no time stamps, no absolute paths), so that two builds can be compared byte by byte.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));

// d3-array is one file in which nothing says that these calls can go with what they make. It is 2 kB that nobody uses.
const d3 = {
  name: "d3-array",
  setup({ onLoad }) {
    onLoad({ filter: /d3-array\.mjs$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(/(?<== )(?=(Blur2|shuffler)\()/g, "/* @__PURE__ */ "),
    }));
  },
};

await build({
  absWorkingDir: here,
  entryPoints: { heatmap: "src/heatmap.ts" },
  outdir: "../gradviz/static",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  plugins: [d3],
});
await build({
  absWorkingDir: here,
  entryPoints: { heatmap: "src/heatmap.css" },
  outdir: "../gradviz/static",
  bundle: true,
  // The oldest browsers that read what the script reads; esbuild adds the prefixes that these need.
  target: ["chrome111", "firefox113", "safari16.4"],
  minify: true,
  charset: "utf8",
  logLevel: "warning",
});
