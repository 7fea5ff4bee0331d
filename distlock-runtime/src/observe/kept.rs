//! Handles of the recorder of the process, kept for each name of a lock: one manager's.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::handles::OfLock;
use super::register::MOST_NAMES;

/// Every name has one place, and those that are too many share another.
const PLACES: usize = MOST_NAMES + 1;
/// So many names are found without the map.
const RECENT: usize = 64;

#[derive(Default)]
pub(super) struct Kept {
    inner: OnceLock<Box<Inner>>,
}

struct Inner {
    /// In the order of their arrival. They stay: a hold remembers a place.
    places: [OnceLock<Arc<OfLock>>; PLACES],
    by_name: RwLock<HashMap<Box<str>, usize, BuildHasherDefault<NameHasher>>>,
    /// The places of names that were looked for last. A name that a program gives its locks mostly stays where it
    /// is in memory: its address says where to look here.
    recent: [AtomicUsize; RECENT],
}

impl Kept {
    #[inline]
    pub(super) fn at(&self, place: usize) -> Option<&Arc<OfLock>> {
        self.inner.get()?.places.get(place)?.get()
    }

    /// Its place, and what is there.
    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Arc<OfLock>)> {
        let inner = self.inner.get()?;
        let recent = &inner.recent[(name.as_ptr().addr() >> 3) % RECENT];
        let place = recent.load(Ordering::Relaxed);
        if let Some(handles) = inner.places[place % PLACES].get()
            && handles.name() == name
        {
            return Some((place, handles));
        }
        let place = *inner.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name)?;
        recent.store(place, Ordering::Relaxed);
        Some((place, inner.places[place].get()?))
    }

    /// Keeps these, unless there are others of the same name by now; says which are kept, and where.
    pub(super) fn keep(&self, new: OfLock) -> (usize, &Arc<OfLock>) {
        let inner = self.inner.get_or_init(|| {
            Box::new(Inner {
                places: [const { OnceLock::new() }; PLACES],
                by_name: RwLock::default(),
                recent: [const { AtomicUsize::new(0) }; RECENT],
            })
        });
        let mut by_name = inner.by_name.write().unwrap_or_else(PoisonError::into_inner);
        // No more names than there are places are ever labels.
        let next = by_name.len().min(PLACES - 1);
        let place = *by_name.entry(new.name().into()).or_insert(next);
        (place, inner.places[place].get_or_init(|| Arc::new(new)))
    }
}

/// Quick, for some hundred names that a program gives its own locks.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use metrics::NoopRecorder;

    use super::*;

    #[test]
    fn what_is_found_is_that_names_own_wherever_the_name_lies() {
        let kept = Kept::default();
        assert!(kept.find("pay").is_none());
        let names: Vec<String> = (0..MOST_NAMES).map(|n| format!("name {n}")).collect();
        for name in &names {
            let (place, handles) = kept.keep(OfLock::register(&NoopRecorder, name));
            assert_eq!(handles.name(), name);
            assert!(Arc::ptr_eq(handles, kept.at(place).expect("kept")));
        }
        // More names than are found without the map, and each in the same place of the memory.
        let mut text = String::with_capacity(64);
        for name in names.iter().chain(&names) {
            text.clear();
            text.push_str(name);
            for _ in 0..2 {
                let (place, handles) = kept.find(&text).expect("kept");
                assert_eq!((handles.name(), names[place].as_str()), (text.as_str(), name.as_str()));
            }
        }
        assert!(kept.find("pay").is_none());
        let (again, _) = kept.keep(OfLock::register(&NoopRecorder, &names[7]));
        assert_eq!(again, 7);
    }
}
