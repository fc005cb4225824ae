#!/usr/bin/env node
// Runs the binary, which is in the package for this platform.
"use strict";
const { spawn } = require("node:child_process");

const owner = `@NAME@-${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${owner}/bin/interflow${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(
    `interflow: the package ${owner} is not installed. Either there is none for this platform, or optional dependencies are off (npm install --include=optional).`,
  );
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`interflow: ${binary} cannot be started: ${error.message}`);
  process.exit(1);
});
// A terminal sends these to the binary, too, which takes a second signal for "end at once".
for (const signal of ["SIGINT", "SIGQUIT", "SIGHUP"]) process.on(signal, () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
