"""The systems that a release is for, and what each kind of package calls them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    name: str
    npm_os: str
    npm_cpu: str
    wheel: str
    # Of packages and images for Linux.
    deb: str = ""
    rpm: str = ""
    oci: str = ""

    @property
    def program(self):
        return "interflow.exe" if self.npm_os == "win32" else "interflow"


# A static binary runs with every C library, old or other.
LINUX_WHEEL = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"
TARGETS = {
    "x86_64-unknown-linux-musl": Target("x86_64-linux-musl", "linux", "x64", LINUX_WHEEL.format("x86_64"), "amd64", "x86_64", "amd64"),
    "aarch64-unknown-linux-musl": Target("aarch64-linux-musl", "linux", "arm64", LINUX_WHEEL.format("aarch64"), "arm64", "aarch64", "arm64"),
    "x86_64-apple-darwin": Target("x86_64-apple-darwin", "darwin", "x64", "macosx_10_12_x86_64"),
    "aarch64-apple-darwin": Target("aarch64-apple-darwin", "darwin", "arm64", "macosx_11_0_arm64"),
    "x86_64-pc-windows-gnu": Target("x86_64-pc-windows-gnu", "win32", "x64", "win_amd64"),
}
