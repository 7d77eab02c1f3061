//! An array in pages that copies share: a snapshot that differs from the last in a few entries copies their pages
//! alone.
//!
//! Built and changed by control; read by the stages, which pay one read more than for a flat table.

use crate::arch;
use std::sync::Arc;

/// Entries of a page.
pub const PAGE_LEN: usize = 128;

/// A page begins with a cache line, so that neighbours can share one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Page<T>([T; PAGE_LEN]);

/// An array of `T` in shared pages.
#[derive(Clone, Debug, Default)]
pub struct Paged<T> {
    pages: Vec<Arc<Page<T>>>,
    len: usize,
}

impl<T: Copy + Default> Paged<T> {
    /// The entries, in order. Control only: it allocates.
    pub fn new(entries: impl IntoIterator<Item = T>) -> Self {
        let mut entries = entries.into_iter().peekable();
        let (mut pages, mut len) = (Vec::new(), 0);
        while entries.peek().is_some() {
            let mut page = Page([T::default(); PAGE_LEN]);
            for (slot, entry) in page.0.iter_mut().zip(&mut entries) {
                *slot = entry;
                len += 1;
            }
            pages.push(Arc::new(page));
        }
        Self { pages, len }
    }

    /// An entry; `None` behind the last page.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        let page = self.pages.get(index / PAGE_LEN)?;
        let [entries] = std::array::from_ref(&page.0);
        entries.get(index % PAGE_LEN)
    }

    /// Asks for the cache line of an entry.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        if let Some(page) = self.pages.get(index / PAGE_LEN) {
            arch::prefetch_entry(&page.0, index % PAGE_LEN);
        }
    }

    /// Changes an entry; copies its page if others have it. Control only: it allocates. Ignored behind the last entry.
    pub fn set(&mut self, index: usize, value: T) {
        if let Some(page) = self.pages.get_mut(index / PAGE_LEN)
            && let Some(entry) = Arc::make_mut(page).0.get_mut(index % PAGE_LEN)
        {
            *entry = value;
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many pages are not those of `other`.
    pub fn pages_unlike(&self, other: &Self) -> usize {
        let same = |i: usize, page: &Arc<Page<T>>| other.pages.get(i).is_some_and(|o| Arc::ptr_eq(o, page));
        self.pages
            .iter()
            .enumerate()
            .filter(|(i, page)| !same(*i, page))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_its_page_alone() {
        let old = Paged::new(0..1000u32);
        let mut new = old.clone();
        new.set(200, 7);
        new.set(201, 8);
        assert_eq!(new.pages_unlike(&old), 1);
        assert_eq!(
            (old.get(200), new.get(200), new.get(201)),
            (Some(&200), Some(&7), Some(&8))
        );
        assert!((0..1000).all(|i| old.get(i) == Some(&(i as u32))));
        assert_eq!(
            (old.len(), old.get(1024), Paged::<u32>::new([]).len()),
            (1000, None, 0)
        );
        // A page that nobody else has is changed where it is.
        drop(old);
        new.set(202, 9);
        assert_eq!(new.get(202), Some(&9));
    }

    #[test]
    fn pairs_share_a_cache_line() {
        let pages = Paged::new((0..300).map(|_| [0u8; 32]));
        let at = |i| std::ptr::from_ref(pages.get(i).unwrap()).addr();
        assert!(
            (0..300)
                .step_by(2)
                .all(|i| at(i) % 64 == 0 && at(i + 1) == at(i) + 32)
        );
    }
}
