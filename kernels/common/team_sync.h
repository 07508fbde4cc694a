// A barrier for a team: the work-items that share one group of patches, or one reference patch, through local memory.
//
// Constants: WARP_SYNC = 1 where one warp holds whole teams (NVIDIA): the barrier of the warp is enough, and costs less.

#if WARP_SYNC
#define TEAM_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define TEAM_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#endif
