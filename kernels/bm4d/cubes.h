// Cubes of 64 voxels, CZ x CY x CX, and where those are that begin a group (references): every STEP_* voxels from `first` on, and
// one at `last`, whether or not that is on the grid, so that every voxel is covered.
//
// Constants: CZ, CY, CX, whose product is 64; STEP_Z, STEP_Y, STEP_X; WINDOW_Z, WINDOW_Y, WINDOW_X (odd).

#define CUBE 64
#define ALONG_X(v) min(first_x + (int)(v) * STEP_X, last_x)
#define ALONG_Y(v) min(first_y + (int)(v) * STEP_Y, last_y)
#define ALONG_Z(v) min(first_z + (int)(v) * STEP_Z, last_z)

// Kernel arguments: the padded volumes, whose voxel (v0, z0, y0, x0) is the origin of a tile, and the references of a tile.
#define PLACE_ARGUMENTS int pnz, int pny, int pitch, int v0, int z0, int y0, int x0, int first_z, int last_z, int layers, \
                        int first_y, int last_y, int rows, int first_x, int last_x, int columns
