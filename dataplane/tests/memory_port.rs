//! The memory port takes no heap memory once it is made: benches measure the stages, not malloc.

use allocation_counter::measure;
use dataplane::io::memory::{MemoryConfig, MemoryPort};
use dataplane::io::{Buffer, Burst, QueuePair};

#[test]
fn receive_transmit_drop_and_alloc_leave_the_heap_alone() {
    let (mut port, wire) = MemoryPort::new(MemoryConfig::default());
    wire.replay(&[[1; 64], [2; 64], [3; 64]]);
    let mut burst = Burst::new();
    let replayed = measure(|| {
        for round in 0..1000 {
            port.rx(&mut burst);
            drop(burst.pop_front());
            let mut own = port.alloc().unwrap();
            own.set_len(60);
            assert!(burst.push(own).is_ok());
            if round % 3 == 0 {
                burst.clear();
            }
            port.tx(&mut burst);
        }
    });
    assert_eq!((replayed.count_total, replayed.count_current), (0, 0));
    assert_eq!(wire.sent(), 32 * 666);

    wire.stop_replay();
    let injected = measure(|| {
        for _ in 0..8 {
            for _ in 0..32 {
                assert!(wire.inject(&[9; 90]));
            }
            port.rx(&mut burst);
            assert_eq!(port.tx(&mut burst), 32);
        }
    });
    assert_eq!((injected.count_total, injected.count_current), (0, 0));
    assert_eq!(wire.take_all().len(), 256);

    // The measure sees what it should.
    assert_eq!(measure(|| drop(vec![0u8; 100])).count_total, 1);
}
