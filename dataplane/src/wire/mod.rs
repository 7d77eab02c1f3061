//! Wire formats, one protocol a file: a view over bytes and a plain value. No allocation, no panic,
//! no policy: what a packet means is decided in `stages`.
