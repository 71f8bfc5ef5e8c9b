// Bundles the tests into a temporary folder and runs them with node's own runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "gradviz-js-"));
try {
  const names = readdirSync(here).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: names.map((name) => join(here, name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    sourcemap: "inline",
    logLevel: "warning",
  });
  const files = names.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
  // From js/, so that the tests find the golden files of the Python side.
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { cwd: join(here, ".."), stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
