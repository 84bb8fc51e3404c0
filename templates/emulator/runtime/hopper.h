// The Hopper half of the emulator: what the scheduler calls, and what its two files share.
#pragma once

#include "runtime.h"

namespace tilec {

void hopper_start_block(int thread_count);
bool hopper_progress();        // nobody can run: lets one asynchronous operation happen; false if none is left
void hopper_random_progress();  // lets an operation happen that need not yet
void hopper_arrivals_of(int thread);  // that wait for copies of this thread happen, with the copies
void hopper_end_block(int thread_count);
void hopper_exchange(int from, int to);  // the running block of a cluster changes
void run_stmatrix(int first_thread);

// The running thread stops until `woken` lets it go on; it asks its own condition again then.
void wait_for(const char* what, int line);
void wake_waiting();

// Shared memory by the addresses that descriptors hold: the tile that has this address, known because a pointer into it was
// turned into an address before.
void remember_region(const void* p, int line);
char* shared_at(unsigned address, int line);

// instructions.cpp
float decode_element(int kind, unsigned bits);  // of a tilec_mma_ kind; f16 is e5m2 with eight more bits
float decode_half(uint16_t bits);
uint16_t round_to_half(double x);

// hopper_products.cpp
void products_start_block(int thread_count);
bool products_progress(bool random);
void products_end_block(int thread_count);
void products_exchange(int from, int to);

// cluster.cpp
void check_peer(int rank, int line);  // a thread may touch that block of its cluster now
void note_touched(int rank, int line, const void* barrier, unsigned phase);  // it has; an arrival at `barrier` tells that block so

}  // namespace tilec
