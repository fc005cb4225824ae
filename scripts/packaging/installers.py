"""Files that name other files of the release, by address and SHA-256: the shell installer, Homebrew's formula, winget's manifests."""

import hashlib
import re

TEMPLATES = "deploy/package"


def fill(template, values, sums):
    """The template with `@NAME@` and `@SHA256 TARGET@` filled in."""
    with open(f"{TEMPLATES}/{template}") as f:
        text = f.read()
    # A system without an archive has no line, and no block in the formula.
    missing = {name for name in re.findall(r"@SHA256 (\S+)@", text) if name not in sums}
    for name in missing:
        pattern = rf'(?m)^ *on_(?:arm|intel) do\n.*\n.*@SHA256 {name}@.*\n *end\n|^.*@SHA256 {name}@.*\n'
        text = re.sub(pattern, "", text)
    # Lines for signed releases only.
    text = re.sub(r"(?m)^# SIGNED\n(.*\n)*?# END SIGNED\n", "" if not values["PUBLIC_KEY"] else lambda m: "\n".join(m[0].split("\n")[1:-2]) + "\n", text)
    return re.sub(r"@(SHA256 )?([A-Za-z0-9_-]+)@", lambda m: sums[m[2]] if m[1] else values[m[2]], text)


def installers(archives, values):
    """Paths and texts, given the archive of each target."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in archives.items()}
    made = {"install.sh": fill("install.sh.in", values, sums), "homebrew/interflow.rb": fill("interflow.rb.in", values, sums)}
    if "x86_64-pc-windows-gnu" in sums:
        upper = {name: value.upper() for name, value in sums.items()}
        for kind in ("version", "installer", "locale.en-US"):
            name = values["WINGET_ID"] + ("" if kind == "version" else f".{kind}") + ".yaml"
            made[f"winget/{name}"] = fill(f"winget/{kind}.yaml.in", values, upper)
    return {path: text.encode() for path, text in made.items()}
