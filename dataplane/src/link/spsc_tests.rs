//! The ring alone, on one thread. With two: `tests.rs` here, and the model in `dataplane/loom`.

use super::spsc::{ring, ring_from};
use std::collections::VecDeque;
use std::sync::Arc;

#[test]
fn fills_to_its_capacity_and_no_further() {
    for (asked, capacity) in [(0, 1), (1, 1), (2, 2), (3, 4), (1000, 1024)] {
        let (mut producer, mut consumer) = ring::<Option<usize>>(asked);
        assert_eq!((producer.capacity(), consumer.capacity()), (capacity, capacity));
        for n in 0..capacity {
            assert_eq!(producer.push(n), Ok(()));
        }
        assert_eq!(producer.push(9999), Err(9999));
        for n in 0..capacity {
            assert_eq!(consumer.pop(), Some(n));
        }
        assert_eq!(consumer.pop(), None);
    }
}

#[test]
fn indices_wrap_around() {
    let (mut producer, mut consumer) = ring_from::<Option<u32>>(4, usize::MAX - 1);
    for n in 0..100 {
        assert_eq!(producer.push(n), Ok(()));
        assert_eq!(producer.push(n + 1000), Ok(()));
        assert_eq!(consumer.peek(|slot| *slot), Some(Some(n)));
        assert_eq!(consumer.pop(), Some(n));
        assert_eq!(consumer.pop(), Some(n + 1000));
    }
}

#[test]
fn what_is_left_is_dropped_once() {
    let value = Arc::new(());
    let (mut producer, consumer) = ring(4);
    producer.push(Arc::clone(&value)).unwrap();
    producer.push(Arc::clone(&value)).unwrap();
    drop(producer);
    assert_eq!(Arc::strong_count(&value), 3, "the consumer may still take them");
    drop(consumer);
    assert_eq!(Arc::strong_count(&value), 1);
}

proptest::proptest! {
    /// Against a plain queue.
    #[test]
    fn is_a_bounded_queue(capacity in 1..5_u32, pushes in proptest::collection::vec(proptest::bool::ANY, 0..200)) {
        let capacity = 1 << (capacity - 1);
        let (mut producer, mut consumer) = ring::<Option<usize>>(capacity);
        let mut plain = VecDeque::new();
        for (n, push) in pushes.into_iter().enumerate() {
            if push {
                let fits = plain.len() < capacity;
                if fits { plain.push_back(n); }
                proptest::prop_assert_eq!(producer.push(n).is_ok(), fits);
            } else {
                proptest::prop_assert_eq!(consumer.peek(|slot| *slot).flatten(), plain.front().copied());
                proptest::prop_assert_eq!(consumer.pop(), plain.pop_front());
            }
        }
    }
}
