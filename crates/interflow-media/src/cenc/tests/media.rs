//! Builds small encrypted MP4s of any structure, with an independent implementation of the encryption.

use aes::cipher::{Array, BlockModeEncrypt as _, KeyIvInit as _, StreamCipher as _};

pub const KID: [u8; 16] = [0xa1; 16];
pub const KEY: [u8; 16] = [0x51; 16];
pub const OTHER_KID: [u8; 16] = [0xb2; 16];
pub const OTHER_KEY: [u8; 16] = [0x62; 16];

pub fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(8 + content.len() as u32).to_be_bytes()[..], kind, &content].concat()
}

pub fn user_box(user: &[u8; 16], parts: &[&[u8]]) -> Vec<u8> {
    boxed(b"uuid", &[&user[..], &parts.concat()])
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// A sample before encryption, with its auxiliary information.
#[derive(Clone, Debug)]
pub struct Plain {
    pub data: Vec<u8>,
    pub iv: [u8; 16],
    pub subsamples: Vec<(u16, u32)>,
}

/// Samples of odd sizes with several unaligned subsamples each.
pub fn samples(n: usize, seed: u8) -> Vec<Plain> {
    let one = |i: usize| {
        let subsamples: Vec<(u16, u32)> =
            (0..1 + i % 3).map(|s| (((i * 7 + s) % 23) as u16, (16 * (i + s) + 13 * s + 5) as u32 * 4)).collect();
        let size: usize = subsamples.iter().map(|(c, p)| usize::from(*c) + *p as usize).sum();
        let data = (0..size).map(|b| (b * 7 + i * 3) as u8 ^ seed).collect();
        Plain { data, iv: [seed.wrapping_add(i as u8); 16], subsamples }
    };
    (0..n).map(one).collect()
}

/// Like `samples`, with each sample protected completely.
pub fn whole_samples(n: usize, seed: u8) -> Vec<Plain> {
    samples(n, seed).into_iter().map(|s| Plain { subsamples: Vec::new(), ..s }).collect()
}

/// How a track is encrypted.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub scheme: [u8; 4],
    pub pattern: (u8, u8),
    pub iv_size: u8,
    pub kid: [u8; 16],
    pub key: [u8; 16],
}

impl Spec {
    pub fn of(scheme: &[u8; 4]) -> Self {
        let pattern = if matches!(scheme, b"cens" | b"cbcs") { (1, 9) } else { (0, 0) };
        Self { scheme: *scheme, pattern, iv_size: 16, kid: KID, key: KEY }
    }

    pub fn other(self) -> Self {
        Self { kid: OTHER_KID, key: OTHER_KEY, ..self }
    }

    /// The IV as the sample uses it.
    pub fn iv(&self, sample: &Plain) -> [u8; 16] {
        match self.iv_size {
            0 => [0xc5; 16],
            8 => std::array::from_fn(|i| if i < 8 { sample.iv[i] } else { 0 }),
            _ => sample.iv,
        }
    }

    /// Encrypts literally as the standard describes, block by block.
    pub fn encrypt(&self, sample: &Plain) -> Vec<u8> {
        let mut data = sample.data.clone();
        let iv = self.iv(sample);
        let whole = vec![(0, data.len() as u32)];
        let subsamples = if sample.subsamples.is_empty() {
            whole
        } else {
            sample.subsamples.iter().map(|(c, p)| (u32::from(*c), *p)).collect()
        };
        let mut places = Vec::new();
        let mut at = 0;
        for (clear, protected) in subsamples {
            at += clear as usize;
            let end = at + protected as usize;
            let mut chosen = Vec::new();
            if &self.scheme == b"cenc" {
                chosen.extend(at..end);
            } else {
                let (crypt, skip) = if self.pattern.1 == 0 { (1, 0) } else { self.pattern };
                let period = usize::from(crypt + skip);
                let is_chosen = |block: usize| block % period < usize::from(crypt);
                let blocks = (end - at) / 16;
                chosen.extend((0..blocks).filter(|b| is_chosen(*b)).flat_map(|b| at + b * 16..at + b * 16 + 16));
            }
            if &self.scheme == b"cbcs" {
                self.cipher(&mut data, &chosen, iv);
            } else {
                places.extend(chosen);
            }
            at = end;
        }
        self.cipher(&mut data, &places, iv);
        data
    }

    fn cipher(&self, data: &mut [u8], places: &[usize], iv: [u8; 16]) {
        let mut bytes: Vec<u8> = places.iter().map(|i| data[*i]).collect();
        if matches!(&self.scheme, b"cenc" | b"cens") {
            ctr::Ctr64BE::<aes::Aes128>::new(&Array(self.key), &Array(iv)).apply_keystream(&mut bytes);
        } else {
            let mut encryptor = cbc::Encryptor::<aes::Aes128>::new(&Array(self.key), &Array(iv));
            let (blocks, rest) = bytes.as_chunks_mut::<16>();
            assert!(rest.is_empty());
            encryptor.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
        }
        places.iter().zip(bytes).for_each(|(i, b)| data[*i] = b);
    }

    pub fn tenc(&self) -> Vec<u8> {
        let pattern = self.pattern.0 << 4 | self.pattern.1;
        let constant = if self.iv_size == 0 { [&[16][..], &[0xc5; 16]].concat() } else { Vec::new() };
        boxed(b"tenc", &[&[1, 0, 0, 0, 0, pattern, 1, self.iv_size], &self.kid, &constant])
    }

    /// A `seig` group entry.
    pub fn group(&self) -> Vec<u8> {
        let pattern = self.pattern.0 << 4 | self.pattern.1;
        [&[0, pattern, 1, self.iv_size][..], &self.kid].concat()
    }

    /// One sample's auxiliary information.
    pub fn information(&self, sample: &Plain) -> Vec<u8> {
        let mut out = sample.iv[..usize::from(self.iv_size)].to_vec();
        if !sample.subsamples.is_empty() {
            out.extend((sample.subsamples.len() as u16).to_be_bytes());
            for (clear, protected) in &sample.subsamples {
                out.extend(clear.to_be_bytes());
                out.extend(protected.to_be_bytes());
            }
        }
        out
    }

    pub fn senc(&self, samples: &[Plain]) -> Vec<u8> {
        let flags = if samples.iter().any(|s| !s.subsamples.is_empty()) { 2 } else { 0 };
        let information: Vec<u8> = samples.iter().flat_map(|s| self.information(s)).collect();
        boxed(b"senc", &[&words(&[flags, samples.len() as u32]), &information])
    }

    pub fn saiz(&self, samples: &[Plain]) -> Vec<u8> {
        let sizes: Vec<u8> = samples.iter().map(|s| self.information(s).len() as u8).collect();
        boxed(b"saiz", &[&[0; 5], &(sizes.len() as u32).to_be_bytes(), &sizes])
    }

    pub fn sinf(&self, format: &[u8; 4], track_encryption: &[u8]) -> Vec<u8> {
        let schm = boxed(b"schm", &[&[0; 4], &self.scheme, &[0, 1, 0, 0]]);
        boxed(b"sinf", &[&boxed(b"frma", &[format]), &schm, &boxed(b"schi", &[track_encryption])])
    }

    pub fn video_entry(&self) -> Vec<u8> {
        boxed(b"encv", &[&[0; 78], &boxed(b"avcC", &[&[1, 2, 3]]), &self.sinf(b"avc1", &self.tenc())])
    }

    pub fn audio_entry(&self) -> Vec<u8> {
        boxed(b"enca", &[&[0; 28], &self.sinf(b"mp4a", &self.tenc())])
    }
}

pub fn clear_entry() -> Vec<u8> {
    boxed(b"avc1", &[&[0; 78], &boxed(b"avcC", &[&[1, 2, 3]])])
}

/// A track; `tables` are the boxes of the `stbl` behind `stsd`.
pub fn track(id: u32, handler: &[u8; 4], entries: &[Vec<u8>], tables: &[u8]) -> Vec<u8> {
    let stsd = boxed(b"stsd", &[&words(&[0, entries.len() as u32]), &entries.concat()]);
    let stbl = boxed(b"stbl", &[&stsd, tables]);
    let hdlr = boxed(b"hdlr", &[&[0; 8], handler, &[0; 13]]);
    let mdhd = boxed(b"mdhd", &[&words(&[0, 0, 0, 90_000, 0, 0x55c4_0000])]);
    let mdia = boxed(b"mdia", &[&mdhd, &hdlr, &boxed(b"minf", &[&stbl])]);
    boxed(b"trak", &[&boxed(b"tkhd", &[&words(&[0, 0, 0, id]), &[0; 68]]), &mdia])
}

/// An init segment with these tracks, a `pssh`, and a `trex` for each id.
pub fn init(tracks: &[Vec<u8>], trex: &[Vec<u8>]) -> Vec<u8> {
    let mvhd = boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]);
    let pssh = boxed(b"pssh", &[&[0; 4], &[0xed; 16], &[0, 0, 0, 2, 9, 9]]);
    boxed(b"moov", &[&mvhd, &pssh, &tracks.concat(), &boxed(b"mvex", &[&trex.concat()])])
}

pub fn trex(id: u32, description: u32, size: u32) -> Vec<u8> {
    boxed(b"trex", &[&words(&[0, id, description, 0, size, 0])])
}

/// A `trun` with a size for each sample.
pub fn trun(data_offset: i32, sizes: impl ExactSizeIterator<Item = usize>) -> Vec<u8> {
    let mut out = words(&[0x201, sizes.len() as u32, data_offset as u32]);
    sizes.for_each(|s| out.extend((s as u32).to_be_bytes()));
    boxed(b"trun", &[&out])
}

/// A `traf` with the default base, these boxes inside.
pub fn traf(id: u32, boxes: &[Vec<u8>]) -> Vec<u8> {
    boxed(b"traf", &[&boxed(b"tfhd", &[&words(&[0x2_0000, id])]), &boxes.concat()])
}

/// A `moof` whose parts depend on its length: built once to measure it, and again with the result.
pub fn moof(parts: impl Fn(i32) -> Vec<Vec<u8>>) -> Vec<u8> {
    let length = boxed(b"moof", &[&parts(0).concat()]).len() as i32;
    boxed(b"moof", &[&parts(length).concat()])
}

pub fn mdat(parts: &[Vec<u8>]) -> Vec<u8> {
    boxed(b"mdat", &[&parts.concat()])
}

pub fn sizes(samples: &[Plain]) -> impl ExactSizeIterator<Item = usize> + '_ {
    samples.iter().map(|s| s.data.len())
}

pub fn plain(samples: &[Plain]) -> Vec<u8> {
    samples.iter().flat_map(|s| s.data.iter().copied()).collect()
}

pub fn sealed(spec: &Spec, samples: &[Plain]) -> Vec<Vec<u8>> {
    samples.iter().map(|s| spec.encrypt(s)).collect()
}

/// A segment of one track in the simplest form: `senc`, one run, one `mdat`.
pub fn segment(spec: &Spec, samples: &[Plain]) -> Vec<u8> {
    let head = moof(|n| vec![traf(1, &[trun(n + 8, sizes(samples)), spec.senc(samples)])]);
    [head, mdat(&sealed(spec, samples))].concat()
}

/// An init segment with one encrypted video track.
pub fn one_track(spec: &Spec) -> Vec<u8> {
    init(&[track(1, b"vide", &[spec.video_entry()], &[])], &[trex(1, 1, 0)])
}
