//! The program's own code in this process' memory: what only the start needed is given back, and read from the file when it is
//! wanted again.
#![allow(unsafe_code)]

use std::fs;
use std::ops::Range;

/// Takes the program's own code out of this process' memory; each page comes back with the next step into it. The kernel keeps
/// pages that are mapped as code longer than others, so without this the code of the start stays for good.
///
/// Gives the number of bytes that were looked at: 0 where the system does not tell what is mapped.
pub fn release_code() -> usize {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return 0 };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return 0 };
    let Some(program) = program.to_str() else { return 0 };
    maps.lines().filter_map(|line| parse_code_mapping(line, program)).map(release_pages).sum()
}

/// Where a line of `/proc/self/maps` (proc_pid_maps(5)) shows code of this program.
fn parse_code_mapping(line: &str, program: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let mode = words.next()?;
    let path = words.nth(3)?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    if mode == "r-xp" && path == program { Some(number(from)?..number(to)?) } else { None }
}

fn release_pages(code: Range<usize>) -> usize {
    // SAFETY: the range is a private mapping, not writable, of a file that the kernel lets nobody write while it runs
    // (ETXTBSY): each page that goes comes back from the file as it was. No memory that Rust allocates lies in it.
    let done = unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
    if done == 0 { code.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_itself_is_found() {
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
    fn the_program_goes_on_without_the_code_that_was_mapped() {
        assert!(release_code() > 0);
        assert!(release_code() > 0, "and again");
    }
}
