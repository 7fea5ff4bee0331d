//! Channel binding (`channel_binding`): a password is bound to the hash of the server's certificate (RFC 5929).

use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::hash::HashAlgorithm;

/// Signature algorithms that use SHA-384, by the bytes of their identifiers: RSA, ECDSA, and the hash itself,
/// which RSASSA-PSS names as a parameter.
const SHA384: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
    &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
];
/// The same for SHA-512.
const SHA512: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
    &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
];

/// Returns the hash of a certificate (DER) with its signature's algorithm, or with SHA-256 if that algorithm is
/// older. `None` if the TLS library has no such hash, as for SHA-512.
pub(crate) fn end_point(certificate: &[u8], config: &ClientConfig) -> Option<Vec<u8>> {
    let algorithm = match signature_algorithm(certificate)? {
        id if contains(id, &SHA512) => HashAlgorithm::SHA512,
        id if contains(id, &SHA384) => HashAlgorithm::SHA384,
        _ => HashAlgorithm::SHA256,
    };
    let suites = config.crypto_provider().cipher_suites.iter();
    let mut hashes = suites.filter_map(|suite| Some(suite.tls13()?.common.hash_provider));
    let hash = hashes.find(|hash| hash.algorithm() == algorithm)?;
    Some(hash.hash(certificate).as_ref().to_vec())
}

fn contains(id: &[u8], some: &[&[u8]]) -> bool {
    some.iter().any(|one| id.windows(one.len()).any(|part| part == *one))
}

/// A certificate is a sequence of three parts: the signed content, the signature's algorithm and the signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (all, _) = element(certificate)?;
    let (_, rest) = element(all)?;
    Some(element(rest)?.0)
}

/// Returns the content of the first element, and the bytes after it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&short, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match usize::from(short) {
        length @ ..0x80 => (length, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long & 0x7f)?;
            // No certificate is this long.
            let length = match bytes {
                [] | [_, _, _, _, ..] => return None,
                bytes => bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            };
            (length, rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_of_a_signature_is_found_and_no_bytes_are_a_panic() {
        let certificate = [0x30, 9, 0x30, 2, 1, 1, 0x30, 3, 6, 1, 7];
        assert_eq!(signature_algorithm(&certificate), Some(&[6, 1, 7][..]));
        for end in 0..certificate.len() {
            assert_eq!(signature_algorithm(&certificate[..end]), None);
        }
        assert_eq!(element(&[0x30, 0x82, 0, 1, 5]), Some((&[5][..], &[][..])));
        assert_eq!(element(&[0x30, 0x80, 0, 0]), None);
        assert_eq!(element(&[0x30, 0x85, 1, 1, 1, 1, 1]), None);
    }
}
