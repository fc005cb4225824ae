//! Reads certificates with their keys from PKCS#12 files (RFC 7292), as Windows, Java and browsers export them.

use base64::Engine as _;
use p12_keystore::{CertificateBag, Pkcs12Archive};

/// The largest file; a chain with its key needs a few KiB.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The chain (leaf first) and the key of a PKCS#12 file, both in PEM.
///
/// # Errors
/// The password is wrong, the file is not PKCS#12 or uses an unsupported encryption, or it does not contain exactly
/// one key with a certificate.
pub fn pkcs12_to_pem(data: &[u8], password: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    // Before parsing, which takes time that grows with the size.
    if data.len() > MAX_FILE_BYTES {
        return Err("it is too long for a certificate with its key".to_owned());
    }
    let archive = Pkcs12Archive::from_pkcs12(data, password).map_err(|e| explain(&e))?;
    let Some(key) = archive.keys.first() else { return Err("it contains no private key".to_owned()) };
    if archive.keys.len() > 1 {
        return Err("it contains several private keys: export only the one to use".to_owned());
    }
    let certs = &archive.certs;
    // The key and its certificate share an identifier (the attribute localKeyId, RFC 2985 5.5.2).
    let id = key.local_key_id.as_ref().map(|id| id.as_ref() as &[u8]);
    let named = certs.iter().find(|c| id.is_some() && c.local_key_id.as_deref() == id);
    // Without a key id, the leaf is the certificate that issued none of the others.
    let issued = |c: &&CertificateBag| {
        certs.iter().any(|o| o.cert.issuer() == c.cert.subject() && o.cert.as_der() != c.cert.as_der())
    };
    let Some(leaf) = named.or_else(|| certs.iter().find(|c| !issued(c))) else {
        return Err("it contains no certificate".to_owned());
    };
    let mut chain = vec![leaf];
    while let Some(last) = chain.last().filter(|c| c.cert.issuer() != c.cert.subject()) {
        let Some(issuer) = certs.iter().find(|c| c.cert.subject() == last.cert.issuer()) else { break };
        // Certificates that issued each other would make the chain endless.
        if chain.iter().any(|c| c.cert.as_der() == issuer.cert.as_der()) {
            break;
        }
        chain.push(issuer);
    }
    let chain: String = chain.iter().map(|c| pem("CERTIFICATE", c.cert.as_der())).collect();
    Ok((chain.into_bytes(), pem("PRIVATE KEY", key.key.as_der()).into_bytes()))
}

/// A PEM block, with 64 characters per line (RFC 7468 section 2).
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|l| std::str::from_utf8(l).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn explain(error: &p12_keystore::error::Error) -> String {
    use p12_keystore::error::Error;
    match error {
        // A wrong password shows as a wrong MAC, or as wrong padding after decryption.
        Error::MacError(_) | Error::UnpadError => "the password is wrong".to_owned(),
        Error::UnsupportedEncryptionScheme | Error::UnsupportedMacAlgorithm => {
            format!("its encryption is not supported ({error}): export it with AES-256, or as PEM")
        }
        e => format!("it is not a valid PKCS#12 file ({e})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::ClientCertificate;

    /// Written by OpenSSL 3.0 with `openssl pkcs12 -export` and the options in the name: one key with its certificate
    /// and, except in the last two, the certificate of their authority. The password of the first three is `secret`.
    const FILES: [(&str, &str); 5] = [
        (
            "-legacy (RC2-40 and 3DES)",
            "MIIFKgIBAzCCBPAGCSqGSIb3DQEHAaCCBOEEggTdMIIE2TCCA88GCSqGSIb3DQEHBqCCA8AwggO8AgEAMIIDtQYJKoZIhvcN\
             AQcBMBwGCiqGSIb3DQEMAQYwDgQICA3qiTp8JsYCAggAgIIDiGm4Xm9ynicKvZzyWAeeaAjUVnOeF+v3eT8jfVVEO47kcFTY\
             nMg+uN/khSYf9YwxE0SoTUMwHgt6bDzgmVhCP85uoFBYLI1D7of0+dI4GKqtrk/1GIr+mYRYHJ8QUTpYP85bnP5tJstKemxx\
             DBLTKvxX8FbgfdBjnu6xf+ppmDmtvGBOI0RYLa7b8mHLEbvueb1DcnbnC1L61dJaxg5FjmefrnylxmwHsS2hi2b1pF+S879Z\
             xaPdYPSiTG6LvJDTZDbLVFhECoykevjau1D6Nfl+DFFIm8Nn1xqdzw1iMtphAjgbH0+36jwdTR0Fojf9D4JfsNJDkR0uZ8bl\
             kQ9bl4+d2qk3ba3plqEEGwSqv11Q0I0oaM2GysTU+xfUUSJzR1lnmt+k54sB3BYPiGDahjUCJhhf9DJDJv5QWPU5HiNuiCMy\
             sqK10NI8OFMLu+8cKtGvaecuiKSM2gvBSj7fkToO2WxFKY2tDIUoyvePM0O5fv9Fhw3KDRW1f/7y/pOrABkcxz0pHu7SxJLc\
             6ggC4JpE7wRu0rpbux42311LHNvwb/ZVsgdlcdtXoB6UMFDTDF374aHjO43HRV2kmBcbCoIb3H9bkXxjzTnZ3uwmAHRHmBoS\
             1ovKwyVlNuIDpdOOqS2QH67CuHFtYlfCfZfJqyqrXW4nqzhSdgty1loQOvHDpNmiuii3vP2QREAJvghtyc8RUH6jge+sxUcq\
             U004l0FQdlzcpqGJgTPsN9kKR5pHlvcWzwXk0EGP8MH6zOOLKqcLnTReU/Vn1CFvCawpjyo9Zp0vPGSZG57QT5mhgPAkLN/P\
             XPVL9Ri3x9V87xiY1xeHFI9Ash9zv7XLMwB2M0GB7VPUz3QK50jSeA6wS4j1PNyE4NyWe/EPvpGbJ3cRMfFl2ZWHDcKgwq8/\
             RmF2ZuIkpSmAT2rhVBChObVDrY4Zu/Duzrmct9z7QeXbgFzGHPKjq/6yflV6GeA7C165NiUcmzLOwhhftHNmw1Idy4G9/20c\
             Kbzd6sC71zArDy3TtvkiMXKfMJZGnebpdm5nHH8pY8oFrMkgqcilcsiAYugqu+hvR94vtR4xr5sWJYyb9vJ5pzuI4ZRimA0y\
             Zpad4IaMXSTeubXu7wC2jDJtLqG3BHwsXDTRkOyEus+tY2vMUItFMK1Ve1p6PJbyXumEZg0PqyPLYh23+ushAt8tCehF7r5C\
             5WWJuoEwggECBgkqhkiG9w0BBwGggfQEgfEwge4wgesGCyqGSIb3DQEMCgECoIG0MIGxMBwGCiqGSIb3DQEMAQMwDgQIybk2\
             GeLRiLQCAggABIGQgNjbHddrLPndwt6pCjQchstR4GIICr2ZrwjiGCKbewwjbpzzCgual6wAj9WDyjiIt73OLC3eCCiR8X9T\
             wF0Al37+eT0aIppf/TuJJAykGLf/DxcP9SfSINgT8dsxFa0v4A/t2ViYR1r+5r5QghBl6xj+oaRmE7p7c0JfXXh2ROxa160v\
             gBfG/ohztX2EWjmQMSUwIwYJKoZIhvcNAQkVMRYEFJkhOSgdyRCe9SMYP6BpcNprNq50MDEwITAJBgUrDgMCGgUABBQTj0rh\
             I8ua1FsMjt4Oag7PiusK+gQIm1rCRc5o410CAggA",
        ),
        (
            "-legacy -descert (3DES)",
            "MIIFKgIBAzCCBPAGCSqGSIb3DQEHAaCCBOEEggTdMIIE2TCCA88GCSqGSIb3DQEHBqCCA8AwggO8AgEAMIIDtQYJKoZIhvcN\
             AQcBMBwGCiqGSIb3DQEMAQMwDgQIRYZcH2fzapoCAggAgIIDiLn588YTB5RHb0eqAJDL1ZFgzajWBqLB3Vp8AVt97cRFFgmZ\
             mNmziVgGdE+Q0DEwkDZOln76RvRBaTVlcohlL99ex/teqZWDRa9pHQIyf98jOPUIbXrOPI/au9tPGv4s8X4a2fhkmD3x0bHO\
             MeYdInjouS2P+pcrNO6/K5ctAKhOaA6lBiqKNRqLFXr8fro8HtrbsbFXpvM2JPy7s05lJ5dXpfnYdDFGsyJznuoQ3Xo5dPdJ\
             yDkwjHG9gu8toF14uBnkhLBfPUJ18S/Twf4mkAFZrYcPlkr8OKRr8umZFkBNYrrs2ZM9ANlCE5j/3rK6FwpRdwq9BpknOAq7\
             u6jV/98Pw2JnwKkiTIIvJri6bgfrt7JS+GbqYjF8bSp+s+eQFvTvEjO1c9mYqmv3XQK1i5802ih1wDJo46rYpcYIBA9s6C99\
             w4ecUoOxcvbOeRyvyfoULK9yGKdPGMJFMcSNfq80QaZ5Y+IJHEc6CXGEQeky0QtPRtiSc+M0muSXkDK8VSgveGHsbGTXo24i\
             NcxSIbFXOR3XLPG8xmZXq3mkh1QQ9VdlVadakiv359Wp3Xovw0MZDIqk/b2xv8m27uc92oO6LToAi9XjqF1l99+mUsmIXV1R\
             s+DNxKTKbmgWBDQvrBLPEotJ8vQSVhPTGecBLH5GdRlwvwNdOpvI4sxAibaqvgQmD2nb0rrk1wSnjjiULUg1QzXtKpl4T7Nx\
             D/7Hn2DxSJOqOdcDjQkY3A12ZDOgyhtbm+nB4vCoK0SDNSoCHhjHUT+WLIYjj2FOhDou7/k2xJtF97muISsaF2i19+pjM3bX\
             tcfCMX3Ys+0wRzPMH6GrpQmuOnoeFuA9DQaGqQE9ACGm4/0Lwicy8ksJTo0dpd1OOzogVc6xZ5sVOVq2MYKKPg7hv52lWkzQ\
             w+qH6wFJkH6jXf/3f/RPJ25Ve8j8AYu8xSX/2YITeYU5WHT7YiqyoQ8TI8othR48saLO9No6iDED9u7q44TE6fHHuxedIl8t\
             R/53xZYec6NbYo5MSxNT0XCzlrNaM9pnRfiTDWTvxSBF8a8J551+ct9Xd+ZNIy5wrVSYm3iHODvanoo8hdBt/VbBcacMmQzS\
             hjFzdYneGqaF0b2hFmWiP3CcwUdyp+QmaDODnIWD7oB5/sa5tWyL0RBNzufTWPOUYCvVbFX8MKwOWAMS5cN/7EwYMoD8DXW/\
             YaZG9ukwggECBgkqhkiG9w0BBwGggfQEgfEwge4wgesGCyqGSIb3DQEMCgECoIG0MIGxMBwGCiqGSIb3DQEMAQMwDgQIf3Hw\
             yQD9XjwCAggABIGQyE4YOzYLY8OIzvIN0qSOF9p//P1ccjIXR/mChJvqXVnHqb1EKFmurMUEAksPriuYZ6cH8HTElK+KIWyG\
             xopbD+3y/qKMXX8ChThYkO7EJ0kdhJh4rR82m7DvD+pPUB5vTqRCb2wH8orjPo35UQxut6SRteQWEhbmd/z/uYjdXz2xT2/E\
             Ce5lW2d7/bN3XZ60MSUwIwYJKoZIhvcNAQkVMRYEFJkhOSgdyRCe9SMYP6BpcNprNq50MDEwITAJBgUrDgMCGgUABBR6bsx/\
             hI1+EWRRGKSaXexCZWUgUwQInfQMRclfZHkCAggA",
        ),
        (
            "(AES-256)",
            "MIIFvAIBAzCCBXIGCSqGSIb3DQEHAaCCBWMEggVfMIIFWzCCBBIGCSqGSIb3DQEHBqCCBAMwggP/AgEAMIID+AYJKoZIhvcN\
             AQcBMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj3gB83hWlcggICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME\
             ASoEED31AB3w958MLiiK5kPjtjeAggOQwNJTthN/yIxCIHW0Tb8v0bx39MUSt7FudyBzBWmnjPAoBRZkEdC8hP6pryux2lO1\
             pSULBLV+s6hEeBLtl6Jf6l8ZsMOpBrfRZbwzTarj1sR8qSBXYAoG3abmaWGG53/v2ANAv7S+QMpNcQUxB1lmyX5Zd37rlyhB\
             DejJAMFI0x4reAAdJKgXf/d3LKRxKoKARyEj07HQKoGhcbEj12yV/iAJ+6qyM8M4sOzUg58EC7J3xDsMKHFWdgAT1BuAmjdj\
             lpoxLwrJ+uM5KihQmd67C76uvJ7+1YjlflGTnM3gA+kC1Tozpx0oGWXiMmVvc0cC6aHO29rvWDcTgy+7Nb+DB2MFyUVivIdh\
             MzuCwfI4tLsC4trGN1ZmAfjRB5ijYjufoaYQ8+fne8TG9VydsvHaBb0Mn94xqTGyUavMuSEEUM35WHzh+9j/yo8VzuCyK5le\
             zSF1hTdR1ObKIYMLQcBASlfG+Pu2rPvxAS91jgzaGWAxngLvi/IiGOG/fhZvzc77YvIFuOWNErJpjTY9HqYzEzlXch8IYi0H\
             j6d36OQmy0ksOC5UUefCJXwzfY5pMYCTA7v7C9LpnFWh8YdE3Xhn3C4VINbe2rjhYLbM6qffGhZqUb9rtD+fyWlSTIrJvylt\
             h1+qkxy5BjhqO55DLrUihbHSd0qHXsiYS9H+lW58/9Rn6iS3O9SDvYRuSJPQJz98K78O05M3vgb2kkwK+9yLg5cBfFo2bQi+\
             5DSLbnHzV6mgxbr42p1B5SmFRzu/FTeyOobRgVi6vhug2xDS+ERA44vSaGhUJb5BHjvlYx2rI4UTzewxmgrR76hvzRQGhEQV\
             PvxEGVHYQVEDh0ICkmpEWeSnBnvwGD0w/93QVVu6WGB8F6PDayzEOjD+XHfJ+1jcwrvcK9pirqvzxkXAfqfz4eVj9lkot9ek\
             2nECb8D5oM2sGmPbWR/YB0w9Awcw2mBlB2DUNd5mHBhDaMYLT/zhp8TwZh8GuswU7KmCzdwiBglF0hZW6Tp92o4dNyChWjhN\
             J0GKA79DTHG9WuMJp4XJa6gxkWTbEQ6YygXhQ82IKLIEfpTiKJqZW5p9ZAe7SNiR0J85c8hEV62vaZ3lAKKXF39lyIUq4Hvv\
             B9SFANST/+Nk4UWVp40ByFF0irQRMhpWQ4He2kOIMaam0P0I4iwZiqeIzMZs258AmgRw9tnrnyVJfjzMBRQMdtrBXojcIqJv\
             MIIBQQYJKoZIhvcNAQcBoIIBMgSCAS4wggEqMIIBJgYLKoZIhvcNAQwKAQKgge8wgewwVwYJKoZIhvcNAQUNMEowKQYJKoZI\
             hvcNAQUMMBwECLSSe2MWndNEAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQfijwZ9R0GjmueKji1nrgiASBkFE+\
             1/LTpmwTRkic1h8VRH/HoloMGbKnFabhteTttO2BfrixQYAa2VOu2T27jReIOLi/XDxyiu72V3+dyFbfRwVkMw+kh2YuFr5y\
             M/T07dIzsnek5om0hAMRZneYxD8OJZBYwerYHriW/dI4LkhhOGn7Ar8HcX5+VUEr/1WwIU7R1MnwZc5tPhxFJwlYuuYEBDEl\
             MCMGCSqGSIb3DQEJFTEWBBSZITkoHckQnvUjGD+gaXDaazaudDBBMDEwDQYJYIZIAWUDBAIBBQAEIA49DDClqJTB8S7Hp4kc\
             1oJM3vBCxmHsJE1QN6OoXCemBAjx4LWero/pmAICCAA=",
        ),
        (
            "(AES-256), no password",
            "MIIEDAIBAzCCA8IGCSqGSIb3DQEHAaCCA7MEggOvMIIDqzCCAmIGCSqGSIb3DQEHBqCCAlMwggJPAgEAMIICSAYJKoZIhvcN\
             AQcBMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgkrSVfLU6qJgICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME\
             ASoEEKcFik+8ZwwjPMp7jAXQzCGAggHgIiatD6lUrjwEaFlhbH6wj7XR0TV0F/ReFxBX+70DKKGa7/DFU4wUBjlCPbWwi2MB\
             EF8L1F/9/H3+jnq73FmjRLu/IKZiI4eZ5pb7FbvIi/JtyhLmBGTUcdOF2PGw9kBtF0tXqDfCB1Ri3aDDqmC6SABEpjD67761\
             2ZeJ4apSSC61F9FLhyYRbBeKBb2i7L/+GlkFTF/ikT66cpISGsXtu6hzlAB32czJPvIQC4PD1S96moJGMs3LW11tei8HCiDG\
             ih5UKesmh1ffdr8iADcvSZ7w1HWC3OCYBepYHwlhXE6otbXBtIlrqQQtxyi2VWWajTL/mrxLhUO+Xj8UmcWfngimA1mAIZK1\
             8K4TRQpHl30+0GHEA2r04gzz9bzUOEI/5XN7tC0uWPFl0nbeih4FBhIt82+WJLLS6oiLl4oMlVQ/p7mzcHJKmNsIjMQwcRvq\
             ivmtcd1DAzkM8iUdTJsn03tA2MV0LrwjYTVQKziXQefSELiJonaDPicY8l3RGe7Kc0jcZLoWSth/5YlZibgzZ9xAHRpaycAS\
             UZE1agBKzMu63HZWv+StaQMF7GMDYC3as/RuIJ0LaOPKl86LDRtm0Dsaer5BUrwrMrKz3Mqdz7y9T8ChDSECpdnQ82x6IGKt\
             MIIBQQYJKoZIhvcNAQcBoIIBMgSCAS4wggEqMIIBJgYLKoZIhvcNAQwKAQKgge8wgewwVwYJKoZIhvcNAQUNMEowKQYJKoZI\
             hvcNAQUMMBwECJeWKh+w9A29AgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQCy/jwgUSOVcMzhU+8dDN/wSBkFmr\
             YzKICPEoHWbZ0MxQR/zSkZc1bqixxzQRwBvNurpNnbXIeNjAfFhRpxugScEBTO4efoLqGLYh6kxUnPsj/QqFDTeNI5D5bWaS\
             cYN45liCGYO7IecwyUVnMzGxvaZDitmnvBT3ytDwfo/wTmSXsGEyXxZ73aq0e9/K7QbLfgUKuIZP/phlSEhKF2LokMK/szEl\
             MCMGCSqGSIb3DQEJFTEWBBSZITkoHckQnvUjGD+gaXDaazaudDBBMDEwDQYJYIZIAWUDBAIBBQAEIMaVEGETNVrtnKqX/PpT\
             SJbQ7gHw1XuBdMQ6Zq4VhRXNBAiZ/BAepJ7XwAICCAA=",
        ),
        (
            "-certpbe NONE -keypbe NONE -nomac",
            "MIIC5AIBAzCCAt0GCSqGSIb3DQEHAaCCAs4EggLKMIICxjCCAecGCSqGSIb3DQEHAaCCAdgEggHUMIIB0DCCAcwGCyqGSIb3\
             DQEMCgEDoIIBlDCCAZAGCiqGSIb3DQEJFgGgggGABIIBfDCCAXgwggEeoAMCAQICFDnFnxlMKs+KvRBvN2P21Q3PjF/+MAoG\
             CCqGSM49BAMCMBUxEzARBgNVBAMMCkZpeHR1cmUgQ0EwIBcNMjYxMTIwMjAyMzQ4WhgPMjEyNjEwMjcyMDIzNDhaMBAxDjAM\
             BgNVBAMMBW93bmVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAExDi3MMifmRp0RAgh20WkqytofQBzhyJVRIb7pnyKsmcr\
             PiJjb5as+FCUvMqHUnnN8qVFsqQCzXFCEJgfiRfllKNPME0wCwYDVR0PBAQDAgeAMB0GA1UdDgQWBBR3hK6sytCU8a7ZWk+c\
             iu9eWrsg3jAfBgNVHSMEGDAWgBQW95td2U38Sdq5KqYdJqQTGoxhLTAKBggqhkjOPQQDAgNIADBFAiEA3isNDOyErc6Nh0Hg\
             7HsbxAZdrvWFaPx9KJTbwJWNzsICICVTrgxMBRd2WVHtDPT7tCtSKvtj1i+PfQLbK4ViFKpQMSUwIwYJKoZIhvcNAQkVMRYE\
             FJkhOSgdyRCe9SMYP6BpcNprNq50MIHYBgkqhkiG9w0BBwGggcoEgccwgcQwgcEGCyqGSIb3DQEMCgEBoIGKMIGHAgEAMBMG\
             ByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCGqd+ESv2VDhG1h8NW8MUYwwfUoBkcldrxeLVK59YGChRANCAATEOLcwyJ+Z\
             GnRECCHbRaSrK2h9AHOHIlVEhvumfIqyZys+ImNvlqz4UJS8yodSec3ypUWypALNcUIQmB+JF+WUMSUwIwYJKoZIhvcNAQkV\
             MRYEFJkhOSgdyRCe9SMYP6BpcNprNq50",
        ),
    ];

    fn read(n: usize, password: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
        let data = base64::engine::general_purpose::STANDARD.decode(FILES[n].1).unwrap();
        pkcs12_to_pem(&data, password)
    }

    #[test]
    fn pkcs12_files_of_each_encryption_yield_chain_and_key() {
        for (n, (how, _)) in FILES.iter().enumerate() {
            let password = if n < 3 { "secret" } else { "" };
            let (chain_pem, key_pem) = read(n, password).unwrap_or_else(|e| panic!("{how}: {e}"));
            let certificates = String::from_utf8(chain_pem.clone()).unwrap().matches("BEGIN CERTIFICATE").count();
            assert_eq!(certificates, if n < 3 { 2 } else { 1 }, "{how}");
            ClientCertificate { chain_pem, key_pem }.check().unwrap_or_else(|e| panic!("{how}: {e}"));
        }
    }

    #[test]
    fn a_wrong_password_and_an_invalid_file_are_distinguished() {
        for (n, (how, _)) in FILES[..3].iter().enumerate() {
            assert_eq!(read(n, "other").unwrap_err(), "the password is wrong", "{how}");
        }
        for data in [&b""[..], b"0", b"-----BEGIN CERTIFICATE-----", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0; 64]] {
            let error = pkcs12_to_pem(data, "").unwrap_err();
            assert!(error.starts_with("it is not a valid PKCS#12 file"), "{error}");
        }
        let whole = base64::engine::general_purpose::STANDARD.decode(FILES[2].1).unwrap();
        for cut in (0..whole.len()).step_by(97) {
            assert!(pkcs12_to_pem(&whole[..cut], "secret").is_err(), "cut at {cut}");
        }
        assert!(pkcs12_to_pem(&vec![0; MAX_FILE_BYTES + 1], "").unwrap_err().contains("too long"));
    }
}
