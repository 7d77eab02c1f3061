//! The network-namespace lab that the end-to-end tests share.
