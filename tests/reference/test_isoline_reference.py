"""The slow isoline filters against cases small enough to be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference import isoline as reference
from reference.isoline_patterns import segment_patterns

FILTERS = {
    "pi_pd": reference.pi_pd,
    "thick": lambda image: reference.pi_pd(image, thickness=3),
    "star": reference.pi_pd_hybrid,
    "square": lambda image: reference.pi_pd_hybrid(image, window="square"),
    "pi_ld": reference.pi_ld,
}


@pytest.fixture(params=FILTERS)
def method(request):
    return FILTERS[request.param]


def noisy(*shape, sigma=10.0, seed=0):
    return 100 + np.random.default_rng(seed).normal(0, sigma, shape)


def rough(ny=31, nx=31):
    """Return whole numbers of which no two agree, by which nothing looks like an isoline."""
    return np.random.default_rng(3).permutation(ny * nx).reshape(ny, nx) * 10.0 + 1000


def draw(image, start, directions, length, levels):
    """Write the levels along a polyline that leaves `start`; return where it ends."""
    patterns, place, levels = segment_patterns(length), np.array(start), iter(levels)
    for direction in directions:
        for offset in patterns[direction]:
            image[tuple(place + offset)] = next(levels)
        place = place + patterns[direction, -1]
    return tuple(place)


def sums_of(*levels):
    return np.array([sum(levels), sum(level**2 for level in levels)], dtype=float)


# One value at a time, from the levels themselves: what the vectorised methods have to find.


def ratio(one, other):
    apart = (np.var(one) * len(one) + np.var(other) * len(other)) / (len(one) + len(other))
    return (len(one) + len(other)) * math.log(np.var([*one, *other]) / apart)


class Plain:
    def __init__(self, image, length, pixels):
        self.reach = pixels + length + 1
        self.padded = np.pad(image, self.reach, mode="reflect")
        self.patterns, self.segments = segment_patterns(length), pixels // length

    def segment(self, place, direction, aside=0):
        left = aside * self.patterns[(direction + 8) % 32, 0]
        return [self.padded[tuple(place + offset + left)] for offset in self.patterns[direction]]

    def own(self, y, x):
        return self.padded[y + self.reach, x + self.reach]

    def best(self, place):
        return int(np.argmin([np.var(self.segment(place, d)) for d in range(32)]))

    def precomputed(self, y, x, t_max, thickness):
        place, isoline, wide = np.array([y, x]) + self.reach, [], []
        for _ in range(self.segments):
            direction = self.best(place)
            segment = self.segment(place, direction)
            if isoline and ratio(isoline, segment) >= t_max:
                break
            isoline += segment
            wide += [v for a in (0, 1, -1)[:thickness] for v in self.segment(place, direction, a)]
            place = place + self.patterns[direction, -1]
        return np.mean([self.own(y, x), *wide]), len(isoline)

    def searched(self, y, x, t_max, deviation):
        found = []
        for first in range(32):
            direction, place = first, np.array([y, x]) + self.reach
            isoline = self.segment(place, first)
            for _ in range(self.segments - 1):
                place = place + self.patterns[direction, -1]
                turns = [(direction + t) % 32 for t in range(-deviation, deviation + 1)]
                turns = [d for d in turns if ratio(isoline, self.segment(place, d)) < t_max]
                if not turns:
                    break
                direction = min(turns, key=lambda d: np.var(isoline + self.segment(place, d)))
                isoline = isoline + self.segment(place, direction)
            mean = np.mean([self.own(y, x), *isoline])
            found.append((-len(isoline), np.var(isoline), first, mean))
        pixels, _, first, mean = min(found)
        return mean, -pixels, first


def test_variance_by_hand():
    assert reference.variance(4, sums_of(10, 12, 14, 16)) == 5
    assert reference.variance(3, sums_of(7, 7, 7)) == 0


def test_log_ratio_by_hand():
    """Variances 5 about one mean, 1 about two; 5.44 and 1.6; equal means."""
    pairs = reference.log_ratio(2, sums_of(10, 12), 2, sums_of(14, 16))
    assert pairs == pytest.approx(4 * math.log(5))
    uneven = reference.log_ratio(2, sums_of(1, 3), 3, sums_of(5, 5, 8))
    assert uneven == pytest.approx(5 * math.log(5.44 / 1.6))
    assert reference.log_ratio(2, sums_of(9, 11), 2, sums_of(8, 12)) == 0


def test_log_ratio_is_twice_the_gain_in_likelihood():
    rng = np.random.default_rng(5)
    one, other = rng.normal(50, 9, 15), rng.normal(54, 9, 5)

    def log_likelihood(residuals):
        deviation = np.sqrt(np.mean(residuals**2))
        return -np.sum(np.log(np.sqrt(2 * np.pi) * deviation) + (residuals / deviation) ** 2 / 2)

    every = np.concatenate([one, other])
    shared = log_likelihood(every - every.mean())
    separate = log_likelihood(np.concatenate([one - one.mean(), other - other.mean()]))
    result = reference.log_ratio(15, sums_of(*one), 5, sums_of(*other))
    assert result == pytest.approx(2 * (separate - shared))


@pytest.mark.parametrize("level", [0.0, 0.1, 37.3, 1e6])
def test_log_ratio_without_variance(level):
    same = reference.log_ratio(10, sums_of(*[level] * 10), 5, sums_of(*[level] * 5))
    assert abs(same) < 1e-9
    other = reference.log_ratio(10, sums_of(*[level] * 10), 5, sums_of(*[level + 1] * 5))
    assert 10 < other < np.inf


def test_segment_sums_by_hand():
    """Column x holds x: right 6 + 7 + 8, up 5 + 5 + 5; direction 1 ends one pixel higher."""
    columns = np.tile(np.arange(12.0), (12, 1))
    sums = reference.segment_sums(columns, 3)[:, :, 5, 5]
    assert sums[:, 0].tolist() == [21, 36 + 49 + 64]
    assert sums[:, 8].tolist() == [15, 75]
    assert sums[0, 16] == 4 + 3 + 2
    rows = reference.segment_sums(columns.T, 3)[0, :, 5, 5]
    assert rows[[0, 1, 4, 8]].tolist() == [15, 14, 9, 9]
    beside = [reference.segment_sums(columns, 3, aside)[0, 8, 5, 5] for aside in (1, -1)]
    assert beside == [12, 18], "upwards, left is at x = 4"


def test_sums_at_borders_are_mirrored():
    sums = reference.segment_sums(np.arange(5.0)[None], 4)
    assert sums[0, 0, 0].tolist() == [10, 12, 12, 10, 6]
    assert sums[0, 8, 0].tolist() == [0, 4, 8, 12, 16]


def test_first_segment_by_hand():
    image = rough()
    draw(image, (15, 15), [11], 5, [40, 42, 44, 46, 48])
    directions, sums = reference.first_segments(image, 5)
    assert directions.dtype == np.uint8
    assert directions[15, 15] == 11
    assert sums[:, 15, 15].tolist() == [220, 40**2 + 42**2 + 44**2 + 46**2 + 48**2]


def test_lowest_direction_wins_a_tie():
    image = rough()
    draw(image, (15, 15), [20], 5, [50] * 5)
    draw(image, (15, 15), [9], 5, [60] * 5)
    assert reference.first_segments(image, 5)[0][15, 15] == 9


def test_centre_may_count():
    """The constant segment is far from the centre, the other one, of variance 2, agrees with it."""
    image = rough()
    image[15, 15] = 52
    draw(image, (15, 15), [3], 5, [500] * 5)
    draw(image, (15, 15), [19], 5, [50, 51, 52, 53, 54])
    assert reference.first_segments(image, 5)[0][15, 15] == 3
    directions, sums = reference.first_segments(image, 5, centre=True)
    assert directions[15, 15] == 19
    assert sums[0, 15, 15] == 260, "the centre is not in the sums"


def test_centre_counts_one_by_one():
    image = noisy(9, 9)
    plain = Plain(image, 5, 5)
    directions, _ = reference.first_segments(image, 5, centre=True)
    for y, x in np.ndindex(image.shape):
        place = np.array([y, x]) + plain.reach
        spreads = [np.var([image[y, x], *plain.segment(place, d)]) for d in range(32)]
        assert spreads[directions[y, x]] == pytest.approx(min(spreads))


def test_walk_by_hand():
    """10 12, then a turn by 45 degrees and 14 16: the log-ratio is 4 log 5 = 6.44.

    The first pixel, 38, is in the mean alone: (38 + 22) / 3 and (38 + 52) / 5. In the test it would
    hide the step, so that the isoline went on at 6.4.
    """
    image = rough()
    image[15, 10] = 38
    end = draw(image, (15, 10), [0, 4], 2, [10, 12, 14, 16])
    assert end == (13, 14)
    stopped = reference.precomputed_isolines(image, 2, 4, t_max=6.4)
    assert stopped.mean[15, 10] == 20
    assert stopped.pixels[15, 10] == 2
    gone_on = reference.precomputed_isolines(image, 2, 4, t_max=6.5)
    assert gone_on.mean[15, 10] == 18
    assert gone_on.pixels[15, 10] == 4
    assert gone_on.directions[15, 10] == 0
    assert gone_on.directions[15, 12] == 4
    short = reference.precomputed_isolines(image, 2, 3, t_max=6.5)
    assert short.pixels[15, 10] == 2


def test_a_walk_may_turn_back():
    """From the end of a short line the best segment is the line itself."""
    image = rough()
    image[15, 10] = 27
    draw(image, (15, 10), [0], 4, [10, 12, 14, 16])
    found = reference.precomputed_isolines(image, 2, 6, t_max=6.5)
    assert found.pixels[15, 10] == 6
    assert found.mean[15, 10] == (27 + 10 + 12 + 14 + 16 + 14 + 12) / 7


def test_thick_walk_by_hand():
    """Beside 10 12 on a row: the same two columns of the rows above, then below.

    The first pixel, 77, counts once, whatever the thickness.
    """
    image = rough()
    image[15, 10] = 77
    draw(image, (15, 10), [0], 2, [10, 12])
    left, right = image[14, 11:13], image[16, 11:13]
    two = reference.precomputed_isolines(image, 2, 2, 1.0, thickness=2)
    three = reference.precomputed_isolines(image, 2, 2, 1.0, thickness=3)
    assert two.mean[15, 10] == pytest.approx(np.mean([77, 10, 12, *left]))
    assert three.mean[15, 10] == pytest.approx(np.mean([77, 10, 12, *left, *right]))
    assert two.pixels[15, 10] == three.pixels[15, 10] == 2


@pytest.mark.parametrize("thickness", [1, 2, 3])
@pytest.mark.parametrize(("length", "pixels", "t_max"), [(5, 25, 1.0), (4, 15, 9.0)])
def test_precomputed_isolines_one_by_one(length, pixels, t_max, thickness):
    image = noisy(12, 14)
    plain = Plain(image, length, pixels)
    result = reference.precomputed_isolines(image, length, pixels, t_max, thickness)
    for y, x in [(0, 0), (5, 6), (6, 6), (11, 13), (3, 12), (9, 1), (7, 8), (2, 4)]:
        mean, number = plain.precomputed(y, x, t_max, thickness)
        assert result.pixels[y, x] == number
        assert result.mean[y, x] == pytest.approx(mean)


@pytest.mark.parametrize(("t_max", "deviation"), [(1.0, 2), (0.1, 1), (20.0, 0), (0.02, 0)])
def test_searched_isolines_one_by_one(t_max, deviation):
    image = noisy(12, 14)
    plain = Plain(image, 4, 15)
    result = reference.searched_isolines(image, 4, 15, t_max, deviation)
    for y, x in [(5, 6), (6, 6), (9, 10), (3, 11), (4, 4), (8, 2), (7, 12), (1, 9)]:
        mean, number, first = plain.searched(y, x, t_max, deviation)
        assert result.pixels[y, x] == number
        assert result.directions[y, x] == first
        assert result.mean[y, x] == pytest.approx(mean)


def test_isolines_turn_by_no_more_than_the_deviation():
    """Fifteen times 50, and a first pixel of 66 in the mean alone: 816 / 16."""
    image = rough()
    image[20, 8] = 66
    draw(image, (20, 8), [0, 2, 4, 6, 8], 3, [50] * 15)

    def pixels(deviation):
        found = reference.searched_isolines(image, 3, 15, 1e-6, deviation)
        return found.pixels[20, 8], found.mean[20, 8]

    assert pixels(2) == (15, 51)
    assert pixels(1)[0] < 15
    free = reference.precomputed_isolines(image, 3, 15, 1e-6)
    assert (free.pixels[20, 8], free.mean[20, 8]) == (15, 51)


def test_the_first_pixel_does_not_choose_the_turn():
    """After three times 50, three times 48 are as likely as may be: (98 + 150 + 144) / 7.

    With the first pixel, 98, the three times 53 above would be nearer.
    """
    image = rough()
    image[15, 15] = 98
    draw(image, (15, 15), [0, 4], 3, [50] * 3 + [53] * 3)
    draw(image, (15, 15), [0, 0], 3, [50] * 3 + [48] * 3)
    found = reference.searched_isolines(image, 3, 6, 1e3, 4)
    assert (found.pixels[15, 15], found.directions[15, 15]) == (6, 0)
    assert found.mean[15, 15] == 56


def test_the_longest_isoline_wins_then_the_most_likely():
    """Six equal pixels to the right, twelve with a variance of 2 / 3 to the left.

    With the first pixel, 99, the means are 399 / 7 and 819 / 13. In the variance, where it does not
    count, it would make the six to the left more likely than those to the right.
    """
    image = rough()
    image[15, 15] = 99
    draw(image, (15, 15), [0, 0], 3, [50] * 6)
    draw(image, (15, 15), [16] * 4, 3, [59, 60, 61] * 4)
    longest = reference.searched_isolines(image, 3, 12, 1e-6, 2)
    assert longest.pixels[15, 15] == 12
    assert longest.mean[15, 15] == pytest.approx(63)
    assert longest.directions[15, 15] == 16
    as_long = reference.searched_isolines(image, 3, 6, 1e-6, 2)
    assert as_long.mean[15, 15] == 57
    assert as_long.directions[15, 15] == 0


@pytest.mark.parametrize("level", [0.0, 37.3, 255.0])
def test_constant_image_is_unchanged(method, level):
    image = np.full((9, 13), level)
    np.testing.assert_allclose(method(image), image, rtol=1e-12)


def test_constant_isolines_are_as_long_as_may_be():
    image = np.full((6, 7), 37.3)
    assert (reference.precomputed_isolines(image, 5, 28, 1.0).pixels == 25).all()
    assert (reference.searched_isolines(image, 5, 28, 1.0, 2).pixels == 25).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("run", [reference.pi_pd, reference.pi_ld])
def test_isolines_follow_stripes(run, axis):
    levels = np.random.default_rng(1).permutation(20) * 9.0
    image = np.moveaxis(np.tile(levels, (20, 1)), 1, axis)
    np.testing.assert_array_equal(run(image), image)
    direction = reference.precomputed_isolines(image, 5, 25, 1.0).directions
    assert (direction == (0 if axis == 0 else 8)).all()


@pytest.mark.parametrize("direction", [1, 2, 3, 4])
def test_isolines_follow_oblique_stripes(direction):
    """Stripes are rows of segments: a walk fits those of every fifth pixel, also when mirrored."""
    rises = -segment_patterns(5)[direction, :, 0]
    x = np.arange(86)
    risen = rises[-1] * (x // 5) + np.array([0, *rises[:-1]])[x % 5]
    levels = np.random.default_rng(1).permutation(200) * 9.0
    image = levels[np.arange(86)[:, None] + risen]
    middle = slice(30, 56), slice(30, 56, 5)
    cases = [
        (image, middle, direction),
        (image.T, middle[::-1], 8 - direction),
        (image[:, ::-1], middle, 16 - direction),
    ]
    for stripes, where, expected in cases:
        found = reference.precomputed_isolines(stripes, 5, 25, 1.0)
        np.testing.assert_array_equal(found.mean[where], stripes[where])
        assert (found.directions[where] % 16 == expected).all()


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turned_images_have_turned_results(method, turns):
    image = noisy(17, 22)
    expected = np.rot90(method(image), turns)
    np.testing.assert_allclose(method(np.rot90(image, turns)), expected, rtol=1e-12)


def test_mirrored_images_have_mirrored_results(method):
    image = noisy(17, 22)
    for mirror in (np.fliplr, np.flipud, np.transpose):
        np.testing.assert_allclose(method(mirror(image)), mirror(method(image)), rtol=1e-12)


def test_walks_go_on_in_the_mirror_image(method):
    """Borders are axes of symmetry: nothing changes if the mirror image is there."""
    image = noisy(8, 11)
    wide = np.pad(image, 40, mode="reflect")
    np.testing.assert_allclose(method(wide)[40:-40, 40:-40], method(image), rtol=1e-12)


def test_levels_shift_and_scale(method):
    image = noisy(15, 15)
    np.testing.assert_allclose(method(image * 4 - 64), method(image) * 4 - 64, rtol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 9)])
def test_tiny_images(method, shape):
    result = method(noisy(*shape))
    assert result.shape == shape
    assert np.isfinite(result).all()


def test_inputs_of_any_type_are_not_modified(method):
    image = noisy(10, 10).astype(np.uint8)
    image.flags.writeable = False
    before = image.tobytes()
    result = method(image)
    assert image.tobytes() == before
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, method(image.astype(np.float64)))


def test_half_planes_by_hand():
    """10 above and on row 8, 0 below: of 41 pixels 26 are above or on it, 15 below."""
    image = np.where(np.arange(17) <= 8, 10.0, 0.0)[:, None] * np.ones(17)
    edges, sums, other_sums = reference.edge_tests(image, 5, 2.0)
    assert edges[0, 8, 8]
    assert (sums[0, 8, 8], other_sums[0, 8, 8]) == (260, 0)
    assert (sums[4, 8, 8], other_sums[4, 8, 8]) == (110, 150)
    assert (sums[2, 8, 8], other_sums[2, 8, 8]) == (160, 100)
    np.testing.assert_array_equal(
        sums + other_sums, np.broadcast_to(sums[0] + other_sums[0], (8, 17, 17))
    )
    _, left, right = reference.edge_tests(image.T, 5, 2.0)
    assert (left[2, 8, 8], right[2, 8, 8]) == (260, 0), "line 2 points up"
    assert (left[6, 8, 8], right[6, 8, 8]) == (110, 150), "line 6 points down"
    assert not edges[:, 2, 8].any(), "the star of row 2 ends on row 7"
    assert edges[:, 5, 8].any()


def half_plane(image, y, x, line):
    patterns = segment_patterns(5)
    parts = [[image[y, x]], []]
    for k in range(8):
        offsets = patterns[4 * (line + k) % 32]
        parts[k > 4] += [image[y + dy, x + dx] for dy, dx in offsets]
    return parts


def test_one_edge_gives_the_mean_of_its_half_plane():
    """The threshold lies between the two largest log-ratios, or above both."""
    image = noisy(21, 21)
    ratios = [ratio(*half_plane(image, 10, 10, line)) for line in range(8)]
    second, largest = sorted(ratios)[-2:]
    own, other = half_plane(image, 10, 10, int(np.argmax(ratios)))
    cases = [
        ((second + largest) / 2, reference.EDGE, np.mean(own)),
        (largest * 1.01, reference.LOW_SLOPE, np.mean(own + other)),
        (second * 0.99, reference.ISOLINE, reference.pi_pd(image)[10, 10]),
    ]
    for t2_max, label, level in cases:
        edges, *_ = reference.edge_tests(image, 5, t2_max)
        assert reference.classes(edges)[10, 10] == label
        result = reference.pi_pd_hybrid(image, t2_max=t2_max)
        assert result[10, 10] == pytest.approx(level)
    square = reference.pi_pd_hybrid(image, t2_max=largest * 1.01, window="square")
    assert square[10, 10] == pytest.approx(image[5:16, 5:16].mean())


def test_hybrid_takes_all_its_settings():
    image = noisy(20, 20)
    edges, *_ = reference.edge_tests(image, 3, 1.0)
    result = reference.pi_pd_hybrid(image, 3, 9, 0.05, 1.0)
    where = reference.classes(edges) == reference.ISOLINE
    assert where.any()
    np.testing.assert_array_equal(result[where], reference.pi_pd(image, 3, 9, 0.05)[where])


def test_noise_alone_looks_like_an_edge_as_often_as_it_must():
    """t of 39 degrees of freedom: 41 log(1 + t^2 / 39) > 2 happens with probability 0.170."""
    edges, *_ = reference.edge_tests(noisy(160, 160), 5, 2.0)
    assert edges.mean() == pytest.approx(0.170, abs=0.01)
    np.testing.assert_allclose(edges.mean(axis=(1, 2)), 0.170, atol=0.03)


def test_flat_noise_has_a_low_slope():
    image = noisy(64, 64)
    edges, *_ = reference.edge_tests(image, 5, 20.0)
    assert (reference.classes(edges) == reference.LOW_SLOPE).mean() > 0.99
    star = reference.pi_pd_hybrid(image, t2_max=20.0)
    assert star.std() == pytest.approx(10 / np.sqrt(41), rel=0.2)
    square = reference.pi_pd_hybrid(image, t2_max=20.0, window="square")
    assert square.std() < 0.8 * star.std()


def test_a_step_is_seen_by_the_lines_beside_it():
    """At the threshold of the paper several lines see it, at 20 only the one along the step.

    For a pixel beside it, oblique half-planes have 5 of 26 and 10 of 15 pixels across: their
    log-ratio is 41 log(0.232 / 0.180) = 10.
    """
    image = noisy(40, 40, sigma=5.0)
    image[:, 20:] += 100
    several = reference.classes(reference.edge_tests(image, 5, 2.0)[0])
    assert (several[:, 18:22] == reference.ISOLINE).all()
    result = reference.pi_pd_hybrid(image)
    np.testing.assert_array_equal(result[:, 18:22], reference.pi_pd(image)[:, 18:22])
    one = reference.classes(reference.edge_tests(image, 5, 20.0)[0])
    assert (one[:, 18:22] == reference.EDGE).all()
    assert (one[:, :14] == reference.LOW_SLOPE).mean() > 0.99
    assert (one[:, 26:] == reference.LOW_SLOPE).mean() > 0.99
    sharp = reference.pi_pd_hybrid(image, t2_max=20.0)
    assert sharp[:, 19].mean() == pytest.approx(100, abs=1)
    assert sharp[:, 20].mean() == pytest.approx(200, abs=1)
