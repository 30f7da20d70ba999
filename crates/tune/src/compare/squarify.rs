//! Rectangles whose areas are in proportion to numbers and whose shapes are near squares, filling a frame exactly.

/// A place on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rectangle {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Rectangle {
    pub fn area(&self) -> f64 {
        self.width * self.height
    }

    /// Cuts a strip of `area` off the longer side: at the left or at the top.
    fn cut(&self, area: f64) -> (Rectangle, Rectangle) {
        let part = if self.area() > 0.0 {
            (area / self.area()).clamp(0.0, 1.0)
        } else {
            0.0
        };
        if self.width >= self.height {
            let width = self.width * part;
            let rest = Rectangle {
                left: self.left + width,
                width: self.width - width,
                ..*self
            };
            (Rectangle { width, ..*self }, rest)
        } else {
            let height = self.height * part;
            let rest = Rectangle {
                top: self.top + height,
                height: self.height - height,
                ..*self
            };
            (Rectangle { height, ..*self }, rest)
        }
    }
}

/// One rectangle for each weight, in the order of the weights; those that are not above 0 get nothing.
pub(super) fn squarify(weights: &[f64], frame: Rectangle) -> Vec<Rectangle> {
    let mut order: Vec<usize> = (0..weights.len())
        .filter(|at| weights[*at].is_finite() && weights[*at] > 0.0)
        .collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    let total: f64 = order.iter().map(|at| weights[*at]).sum();
    let mut placed = vec![
        Rectangle {
            left: frame.left,
            top: frame.top,
            ..Rectangle::default()
        };
        weights.len()
    ];
    let area = |at: &usize| weights[*at] / total * frame.area();
    let mut rest = frame;
    let mut from = 0;
    while from < order.len() {
        let side = rest.width.min(rest.height);
        let mut to = from + 1;
        let mut strip_area = area(&order[from]);
        // The strip grows while its worst shape gets better.
        while to < order.len() {
            let larger = strip_area + area(&order[to]);
            let (largest, least, next) =
                (area(&order[from]), area(&order[to - 1]), area(&order[to]));
            if worst_shape(larger, largest, next, side)
                > worst_shape(strip_area, largest, least, side)
            {
                break;
            }
            strip_area = larger;
            to += 1;
        }
        let is_last = to == order.len();
        let (strip, left) = if is_last {
            (rest, Rectangle::default())
        } else {
            rest.cut(strip_area)
        };
        fill(
            strip,
            rest.width >= rest.height,
            &order[from..to],
            weights,
            &mut placed,
        );
        rest = left;
        from = to;
    }
    placed
}

/// The worst relation of sides in a strip of `strip` area along `side`.
fn worst_shape(strip: f64, largest: f64, least: f64, side: f64) -> f64 {
    let thickness = strip / side;
    let squared = thickness * thickness;
    (largest / squared)
        .max(squared / least)
        .max(squared / largest)
        .max(least / squared)
}

/// Puts rectangles one after another along a strip, the last up to its end.
fn fill(
    strip: Rectangle,
    is_column: bool,
    members: &[usize],
    weights: &[f64],
    placed: &mut [Rectangle],
) {
    let total: f64 = members.iter().map(|at| weights[*at]).sum();
    let mut before = 0.0;
    for at in members {
        let (from, to) = (before / total, (before + weights[*at]) / total);
        placed[*at] = if is_column {
            Rectangle {
                top: strip.top + strip.height * from,
                height: strip.height * (to - from),
                ..strip
            }
        } else {
            Rectangle {
                left: strip.left + strip.width * from,
                width: strip.width * (to - from),
                ..strip
            }
        };
        before += weights[*at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Rectangle = Rectangle {
        left: 10.0,
        top: 20.0,
        width: 960.0,
        height: 540.0,
    };

    /// Deterministic weights over seven orders of magnitude.
    fn weights(count: usize, mut seed: u64) -> Vec<f64> {
        (0..count)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                10f64.powf((seed >> 33) as f64 / (1u64 << 31) as f64 * 7.0 - 2.0)
            })
            .collect()
    }

    #[test]
    fn areas_are_proportional_inside_the_frame_and_do_not_overlap() {
        for count in 1..60 {
            let weights = weights(count, count as u64);
            let total: f64 = weights.iter().sum();
            let placed = squarify(&weights, FRAME);
            for (at, place) in placed.iter().enumerate() {
                let expected = weights[at] / total * FRAME.area();
                assert!((place.area() / expected - 1.0).abs() < 1e-6, "{count} {at}");
                assert!(place.left >= FRAME.left - 1e-6 && place.top >= FRAME.top - 1e-6);
                assert!(place.left + place.width <= FRAME.left + FRAME.width + 1e-6);
                assert!(place.top + place.height <= FRAME.top + FRAME.height + 1e-6);
                for other in &placed[at + 1..] {
                    let across = (place.left + place.width).min(other.left + other.width)
                        - place.left.max(other.left);
                    let down = (place.top + place.height).min(other.top + other.height)
                        - place.top.max(other.top);
                    assert!(across < 1e-6 || down < 1e-6, "{count}: {place:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn equal_weights_become_near_squares() {
        for place in squarify(&[1.0; 12], FRAME) {
            let shape = place.width / place.height;
            assert!((0.4..2.5).contains(&shape), "{place:?}");
        }
    }

    #[test]
    fn what_took_no_time_gets_no_place() {
        let placed = squarify(&[0.0, 2.0, f64::NAN, -1.0], FRAME);
        assert_eq!(placed[1], FRAME);
        assert!([0, 2, 3].iter().all(|at| placed[*at].area() == 0.0));
        assert!(squarify(&[], FRAME).is_empty());
    }
}
