// A quotient whose last bits do not matter.
//
// GPUs take native_divide: divisions made the Wiener filter of BM3D 7 % slower on an NVIDIA H200. But its error is what an
//   implementation likes: Intel's CPU runtime 2026.2 is right to 3e-4 of the quotient only. Vectors, which are for CPUs, are divided.
// Needs: REAL.

#define QUOTIENT(a, b) (vec_step(REAL) == 1 ? native_divide(a, b) : (a) / (b))
