//! A burst of owned packet buffers, in an array. Owned by the worker; filled by receive, emptied by transmit.
pub struct Burst<B>(core::marker::PhantomData<B>);
