// Noise whose sigma varies within a frame: a map of factors, read in the middle of each patch.
//
// Constants: SIGMA_MAP = 1 where there is a map.
// Shapes: variation (map_ny, map_pitch), whose pixel (map_y, map_x) is the padded origin.

#if SIGMA_MAP
#define MAP_ARGUMENTS __global const float *variation, int map_pitch, int map_y, int map_x,
#define MAP_AROUND(y, x) {variation + ((y) + map_y + PATCH / 2) * map_pitch + (x) + map_x + PATCH / 2, map_pitch}
#else
#define MAP_ARGUMENTS
#define MAP_AROUND(y, x) {0, 0}
#endif

// The map around the middle of a reference patch.
typedef struct {
    __global const float *centre;
    int pitch;
} SigmaMap;

// Factor of sigma in a patch that lies (dy, dx) from the reference.
static inline float sigma_factor(SigmaMap map, int dy, int dx)
{
    return SIGMA_MAP ? map.centre[dy * map.pitch + dx] : 1.0f;
}
