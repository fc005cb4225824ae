//! Releases the program's own code pages after startup: those that are needed again are read from the file.
#![allow(unsafe_code)]

use std::fs;
use std::ops::Range;

/// Releases the program's own code from this process's memory; each page is read again when it is next executed. The
/// kernel keeps executable pages longer than others, so without this the startup code would stay resident.
///
/// Returns the number of bytes examined: 0 if the system does not report mappings.
pub fn release_code() -> usize {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return 0 };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return 0 };
    let Some(program) = program.to_str() else { return 0 };
    maps.lines().filter_map(|line| parse_code_mapping(line, program)).map(release_pages).sum()
}

/// The address range in a line of `/proc/self/maps` (proc_pid_maps(5)), if it is code of this program.
fn parse_code_mapping(line: &str, program: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let mode = words.next()?;
    let path = words.nth(3)?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    // Private, readable and executable, but not writable.
    if mode == "r-xp" && path == program { Some(number(from)?..number(to)?) } else { None }
}

fn release_pages(code: Range<usize>) -> usize {
    // SAFETY: the range is a private, non-writable mapping of a file that the kernel does not allow to be written
    // while it runs (ETXTBSY), so every released page is read from the file unchanged. No memory allocated by Rust is
    // in it.
    let done = unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
    if done == 0 { code.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_mapping_is_found_only_for_the_own_executable() {
        for (line, found) in [
            ("1000-3000 r-xp 00cd1000 fe:00 10389765                   /usr/bin/interflow", Some(0x1000..0x3000)),
            ("1000-3000 r--p 00000000 fe:00 10389765                   /usr/bin/interflow", None),
            ("1000-3000 rw-p 02d4a000 fe:00 10389765                   /usr/bin/interflow", None),
            ("1000-3000 r-xp 00000000 fe:00 7                          /usr/lib/libc.so.6", None),
            ("1000-3000 rw-p 00000000 00:00 0", None),
            ("", None),
        ] {
            assert_eq!(parse_code_mapping(line, "/usr/bin/interflow"), found, "{line}");
        }
    }

    #[test]
    fn code_pages_can_be_released_repeatedly() {
        assert!(release_code() > 0);
        assert!(release_code() > 0, "and again");
    }
}
