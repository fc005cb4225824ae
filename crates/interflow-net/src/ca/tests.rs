//! The CA's files, its leaf certificates as clients see them, and its cache under load.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;

use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::io::IoStream;
use crate::tls::TlsProfile;
use crate::tls::tests::{Authority, handshake, host, trusting};

fn opened(dir: &Path) -> CertificateAuthority {
    CertificateAuthority::open_or_create(dir).unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// The chain that a client which trusts `roots` receives for a host.
async fn chain_for(ca: &CertificateAuthority, name: &str, roots: &str) -> Vec<CertificateDer<'static>> {
    let profile = TlsProfile::new(trusting(roots)).unwrap();
    let server = ca.server_tls(&host(name), Alpn::Both);
    let (accepted, connected) = handshake(&server, &profile, name, Alpn::Both).await;
    accepted.unwrap();
    let io: IoStream = connected.unwrap().0;
    let chain = io.client_session().unwrap().peer_certificates().unwrap();
    chain.iter().map(|der| der.clone().into_owned()).collect()
}

#[tokio::test]
async fn the_root_is_sent_only_to_clients_that_recognise_it_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let profile = TlsProfile::new(trusting(ca.certificate_pem())).unwrap();
    let server = ca.server_tls_with_root(&host("a.test"), Alpn::Both);
    let (accepted, connected) = handshake(&server, &profile, "a.test", Alpn::Both).await;
    accepted.unwrap();
    let io: IoStream = connected.unwrap().0;
    let chain = io.client_session().unwrap().peer_certificates().unwrap().to_vec();
    assert_eq!((chain.len(), &*chain[1]), (2, ca.certificate_der()));
    let (_, root) = X509Certificate::from_der(&chain[1]).unwrap();
    assert_eq!(hex::encode(ca.spki_sha256()), issue::sha256_hex(root.public_key().raw));
    assert_eq!(chain_for(&ca, "a.test", ca.certificate_pem()).await.len(), 1);
    assert_eq!(ca.leaves_signed(), 1, "both send the same leaf");
}

#[test]
fn the_first_start_creates_a_private_ca_and_the_second_reuses_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("deep").join("ca");
    let ca = opened(&folder);
    assert_eq!((mode(&folder), mode(&folder.join("ca.key"))), (0o700, 0o600));
    assert_eq!(std::fs::read_to_string(folder.join("ca.pem")).unwrap(), ca.certificate_pem());
    let again = opened(&folder);
    assert_eq!(again.fingerprint_sha256(), ca.fingerprint_sha256());
    assert_eq!(ca.fingerprint_sha256().len(), 32 * 3 - 1);
    assert!(ca.name().starts_with("Interflow CA ("), "{}", ca.name());
    let years = ca.remaining().as_secs() / (365 * 86_400);
    assert!((9..=10).contains(&years), "{years}");
}

#[test]
fn the_ca_may_sign_leaves_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let (_, cert) = X509Certificate::from_der(ca.certificate_der()).unwrap();
    let constraints = cert.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    assert!(cert.key_usage().unwrap().unwrap().value.key_cert_sign());
    cert.verify_signature(None).unwrap();
}

#[test]
fn a_key_readable_by_others_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    opened(dir.path());
    let key = dir.path().join("ca.key");
    for open in [0o644, 0o640, 0o604] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(open)).unwrap();
        let error = CertificateAuthority::open_or_create(dir.path()).err().unwrap();
        assert!(error.message().contains(&format!("chmod 600 {}", key.display())), "{error}");
    }
}

#[test]
fn files_that_are_not_a_ca_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (pem, key) = (dir.path().join("ca.pem"), dir.path().join("ca.key"));
    opened(dir.path());
    let good = std::fs::read(&pem).unwrap();
    let stranger = tempfile::tempdir().unwrap();
    opened(stranger.path());
    let no_ca = Authority::new("x").issue(&crate::tls::tests::names(&["a"])).0;
    let spoil: [(&dyn Fn(), &str); 5] = [
        (&|| std::fs::copy(stranger.path().join("ca.pem"), &pem).map(drop).unwrap(), "ca.key is not the key of ca.pem"),
        (&|| std::fs::write(&pem, &no_ca).unwrap(), "is not a CA's"),
        (&|| std::fs::write(&pem, "nonsense").unwrap(), "contains no certificate"),
        (&|| std::fs::remove_file(&pem).unwrap(), "ca.pem is missing although"),
        (
            &|| {
                std::fs::write(&pem, &good).unwrap();
                std::fs::write(&key, "nonsense").unwrap();
            },
            "must be an unencrypted key in PEM",
        ),
    ];
    for (spoil, text) in spoil {
        spoil();
        let error = CertificateAuthority::open_or_create(dir.path()).err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.error_source(), interflow_types::ErrorSource::Config);
    }
}

#[test]
fn unusable_ca_directory_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = CertificateAuthority::open_or_create(&file.join("ca")).err().unwrap();
    assert!(error.message().contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn concurrent_first_starts_create_one_ca() {
    let dir = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(8);
    let seen: HashSet<_> = std::thread::scope(|scope| {
        let start = || {
            barrier.wait();
            opened(dir.path()).fingerprint_sha256()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(seen.len(), 1);
}

#[test]
fn rotation_makes_another_ca_and_keeps_only_the_old_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let old = opened(dir.path());
    let old_key = std::fs::read(dir.path().join("ca.key")).unwrap();
    let new = CertificateAuthority::rotate(dir.path(), &CaOptions::default()).unwrap();
    assert_ne!(new.fingerprint_sha256(), old.fingerprint_sha256());
    assert_eq!(opened(dir.path()).fingerprint_sha256(), new.fingerprint_sha256());
    let kept: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| std::fs::read(p).unwrap() == old.certificate_pem().as_bytes())
        .collect();
    assert_eq!(kept.len(), 1);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        assert_ne!(std::fs::read(entry.unwrap().path()).unwrap(), old_key);
    }
}

#[test]
fn a_ca_from_elsewhere_takes_the_place_of_the_present_one_once() {
    let (dir, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = opened(dir.path());
    let new = CertificateAuthority::create(next.path()).unwrap();
    assert!(CertificateAuthority::create(next.path()).err().unwrap().message().contains("already"));
    let key = std::fs::read_to_string(next.path().join("ca.key")).unwrap();
    let adopt = |pem: &str, key: &str| CertificateAuthority::adopt(dir.path(), pem, key, "the Secret");
    // Nothing of the present one is lost for one that cannot be used.
    for (pem, key, text) in [
        (old.certificate_pem(), &key[..], "is not the key of"),
        ("nonsense", &key, "contains no certificate"),
        (new.certificate_pem(), "nonsense", "the CA's key the Secret cannot be used"),
    ] {
        let error = adopt(pem, key).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(opened(dir.path()).fingerprint_sha256(), old.fingerprint_sha256());
    }
    assert!(adopt(new.certificate_pem(), &key).unwrap());
    assert!(!adopt(new.certificate_pem().trim(), &key).unwrap(), "the same one is no change");
    assert_eq!(opened(dir.path()).fingerprint_sha256(), new.fingerprint_sha256());
    assert_eq!(mode(&dir.path().join("ca.key")), 0o600);
    let kept = format!("ca-{}.pem", &issue::sha256_hex(old.certificate_der())[..16]);
    assert_eq!(std::fs::read_to_string(dir.path().join(kept)).unwrap(), old.certificate_pem());
}

#[tokio::test]
async fn leaf_certificate_has_the_fields_clients_require() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let (_, root) = X509Certificate::from_der(ca.certificate_der()).unwrap();
    let long = format!("{}.example", "a".repeat(60));
    let sans: [(&str, Option<&str>, GeneralName<'_>); 5] = [
        ("a.example", Some("a.example"), GeneralName::DNSName("a.example")),
        ("a.example.", Some("a.example"), GeneralName::DNSName("a.example")),
        (&long, None, GeneralName::DNSName(&long)),
        ("127.0.0.1", Some("127.0.0.1"), GeneralName::IPAddress(&[127, 0, 0, 1])),
        ("[::1]", Some("::1"), GeneralName::IPAddress(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
    ];
    for (name, cn, san) in sans {
        let chain = chain_for(&ca, name, ca.certificate_pem()).await;
        assert_eq!(chain.len(), 1, "a self-signed root need not be sent");
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        leaf.verify_signature(Some(root.public_key())).unwrap();
        assert_eq!(leaf.subject().iter_common_name().next().map(|c| c.as_str().unwrap()), cn);
        assert_eq!(leaf.subject_alternative_name().unwrap().unwrap().value.general_names, [san]);
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        assert!(leaf.key_usage().unwrap().unwrap().value.digital_signature());
        assert!(!leaf.is_ca());
        let validity = leaf.validity();
        let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let now = now() as i64;
        assert!(to - from <= 90 * 86_400 && now - from >= 86_400 && to > now + 80 * 86_400);
        assert_eq!(leaf.raw_serial().len(), 16);
        assert!(leaf.raw_serial()[0] & 0x80 == 0);
        assert_eq!(key_id(&leaf, true), key_id(&root, false), "AKI names the CA's key");
        assert!(key_id(&leaf, false).is_some());
        assert_ne!(leaf.public_key().raw, root.public_key().raw);
    }
}

/// The authority's or the subject's key identifier.
fn key_id(cert: &X509Certificate<'_>, authority: bool) -> Option<Vec<u8>> {
    cert.extensions().iter().find_map(|e| match e.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) if authority => Some(id.key_identifier.as_ref()?.0.to_vec()),
        ParsedExtension::SubjectKeyIdentifier(id) if !authority => Some(id.0.to_vec()),
        _ => None,
    })
}

#[test]
fn each_leaf_has_a_key_and_a_serial_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let mut keys = HashSet::new();
    let mut serials = HashSet::new();
    for i in 0..200 {
        let key = KeyPool::take(&ca.keys);
        let minted = ca.minter.issue(&host(&format!("h{i}.example")), &key, now());
        let (_, leaf) = X509Certificate::from_der(&minted.chain[0]).unwrap();
        assert!(keys.insert(leaf.public_key().raw.to_vec()));
        assert!(serials.insert(leaf.raw_serial().to_vec()));
    }
}

#[test]
fn a_thousand_concurrent_misses_sign_one_leaf() {
    const THREADS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let barrier = Barrier::new(THREADS);
    let leaves: Vec<_> = std::thread::scope(|scope| {
        let hit = || {
            barrier.wait();
            (0..50).map(|_| ca.server_tls(&host("a.example"), Alpn::Both)).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(hit)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(leaves.len(), 1000);
    assert!(leaves.iter().all(|s| Arc::ptr_eq(s, &leaves[0])));
    assert_eq!(ca.leaves_signed(), 1);
}

#[test]
fn tls_configs_with_different_alpn_share_one_leaf() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let [a, b] = [Alpn::Http1, Alpn::Both].map(|alpn| ca.server_tls(&host("a.example"), alpn));
    assert!(!Arc::ptr_eq(&a, &b));
    assert_eq!(ca.leaves_signed(), 1);
}

#[test]
fn the_cache_is_bounded_and_evicts_the_least_recently_used() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::open_with(dir.path(), &CaOptions { leaves: 64, ..CaOptions::default() }).unwrap();
    let busy = ca.server_tls(&host("busy.example"), Alpn::Both);
    for i in 0..400 {
        ca.server_tls(&host(&format!("h{i}.example")), Alpn::Both);
        assert!(Arc::ptr_eq(&busy, &ca.server_tls(&host("busy.example"), Alpn::Both)));
    }
    assert!(ca.leaves_cached() <= 64, "{}", ca.leaves_cached());
    assert_eq!(ca.leaves_signed(), 401);
}

#[test]
fn a_leaf_is_renewed_before_it_expires() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let leaves = LeafCache::new(10);
    let name = host("a.example");
    let start = 1_000 * 86_400;
    let get = |day: u64| {
        leaves.get(&name, start + day * 86_400, (Alpn::Both, None), || {
            let key = KeyPool::take(&ca.keys);
            let minted = ca.minter.issue(&name, &key, start + day * 86_400);
            LeafCertificate::new(minted.chain, &key, minted.not_before, minted.not_after)
        })
    };
    let first = get(0);
    assert!(Arc::ptr_eq(&first, &get(81)));
    // It is valid for 90 days from the day before, and is renewed a week before it expires.
    let second = get(82);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &get(83)));
    assert_eq!(leaves.len(), 1);
}

#[tokio::test]
async fn persisted_leaves_survive_a_restart_but_not_their_ca() {
    let dir = tempfile::tempdir().unwrap();
    let options = CaOptions { persist_leaves: true, ..CaOptions::default() };
    let first = CertificateAuthority::open_with(dir.path(), &options).unwrap();
    let leaf = chain_for(&first, "a.example", first.certificate_pem()).await;
    let second = CertificateAuthority::open_with(dir.path(), &options).unwrap();
    assert_eq!(chain_for(&second, "a.example", second.certificate_pem()).await, leaf);
    assert_eq!(second.leaves_signed(), 0);
    let folder = second.store.as_ref().unwrap().folder.clone();
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!((mode(&folder), mode(&files[0])), (0o700, 0o600));
    // A corrupted file is replaced.
    std::fs::write(&files[0], "nonsense").unwrap();
    let third = CertificateAuthority::open_with(dir.path(), &options).unwrap();
    assert_ne!(chain_for(&third, "a.example", third.certificate_pem()).await, leaf);
    let rotated = CertificateAuthority::rotate(dir.path(), &options).unwrap();
    assert_ne!(chain_for(&rotated, "a.example", rotated.certificate_pem()).await, leaf);
    assert_eq!(rotated.leaves_signed(), 1);
}

#[test]
fn persisted_leaves_are_bounded_by_the_cache_size() {
    let dir = tempfile::tempdir().unwrap();
    let options = CaOptions { persist_leaves: true, leaves: 20, ..CaOptions::default() };
    let files = |ca: &CertificateAuthority| std::fs::read_dir(&ca.store.as_ref().unwrap().folder).unwrap().count();
    let ca = CertificateAuthority::open_with(dir.path(), &options).unwrap();
    for i in 0..50 {
        ca.server_tls(&host(&format!("{i}.example")), Alpn::Both);
        assert!(files(&ca) <= 20, "after {i}");
    }
    assert_eq!(files(&ca), 20);
    // Existing files are not counted twice, and the latest are kept.
    let again = CertificateAuthority::open_with(dir.path(), &CaOptions { leaves: 10, ..options }).unwrap();
    assert_eq!(files(&again), 10);
    again.server_tls(&host("49.example"), Alpn::Both);
    assert_eq!((again.leaves_signed(), files(&again)), (0, 10));
}

#[tokio::test]
async fn an_intermediate_ca_sends_its_chain() {
    let dir = tempfile::tempdir().unwrap();
    let root = Authority::new("The company's root");
    let (cert, key) = root.below("The company's proxy CA");
    std::fs::write(dir.path().join("ca.pem"), cert + &root.pem).unwrap();
    let key_path = dir.path().join("ca.key");
    std::fs::write(&key_path, key).unwrap();
    std::fs::set_permissions(&key_path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ca = opened(dir.path());
    assert_eq!(ca.name(), "The company's proxy CA");
    assert_eq!(chain_for(&ca, "a.example", &root.pem).await.len(), 2);
}

#[test]
fn pem_and_der_exports_contain_the_same_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = opened(dir.path());
    let der = CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap();
    assert_eq!(&der[..], ca.certificate_der());
}
