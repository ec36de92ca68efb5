//! Plots as SVG: bars in parts, lines, and points. Plain shapes and text, so that any browser shows
//! them and a change is a readable difference.

use std::fmt::Write;

/// The form of a plot, with its values.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A bar for each label, with a part for each name.
    Bars {
        /// Below the bars.
        labels: Vec<String>,
        /// The parts, the lowest first: a name, a value for each bar.
        parts: Vec<(String, Vec<f64>)>,
    },
    /// Lines through points.
    Lines(Vec<(String, Vec<(f64, f64)>)>),
    /// Points alone.
    Points(Vec<(String, Vec<(f64, f64)>)>),
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The label of the horizontal axis.
    pub x: String,
    /// The label of the vertical axis.
    pub y: String,
    /// The horizontal axis grows by factors.
    pub x_by_factors: bool,
    /// Its form, with its values.
    pub shape: Shape,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 330.0;
/// Colours that colour-blind people can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000", "#8c8c00",
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number at an axis.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 100.0).round() / 100.0),
    }
}

/// A step that divides an axis into about five parts.
fn step(top: f64) -> f64 {
    let rough = (top / 5.0).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| times * power >= rough);
    times.unwrap_or(10.0) * power
}

struct Canvas {
    text: String,
    top: f64,
    from: f64,
    to: f64,
    by_factors: bool,
}

impl Canvas {
    fn put(&mut self, shape: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{shape}");
    }

    fn at_y(&self, y: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * y / self.top
    }

    fn at_x(&self, x: f64) -> f64 {
        let scale = |x: f64| if self.by_factors { x.max(1e-9).ln() } else { x };
        let part = (scale(x) - scale(self.from)) / (scale(self.to) - scale(self.from)).max(1e-9);
        LEFT + 10.0 + (RIGHT - LEFT - 20.0) * part
    }

    fn label(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn y_axis(&mut self, name: &str) {
        let step = step(self.top);
        let mut value = 0.0;
        while value <= self.top {
            let y = self.at_y(value);
            self.put(format_args!(
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>"
            ));
            self.label(LEFT - 6.0, y + 4.0, "end", &number(value));
            value += step;
        }
        self.label(LEFT, TOP - 8.0, "start", name);
    }

    fn legend(&mut self, at: usize, name: &str) {
        let (y, colour) = (TOP + 20.0 * at as f64, COLOURS[at % COLOURS.len()]);
        let x = RIGHT + 14.0;
        self.put(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        ));
        self.label(x + 18.0, y + 11.0, "start", name);
    }
}

impl Plot {
    /// The plot as an SVG document.
    pub fn svg(&self, title: &str) -> String {
        let (from, to, top) = self.extent();
        let mut canvas = Canvas {
            text: String::new(),
            top,
            from,
            to,
            by_factors: self.x_by_factors,
        };
        canvas.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"
        ));
        canvas.label(LEFT, 18.0, "start", title);
        canvas.y_axis(&self.y);
        canvas.label((LEFT + RIGHT) / 2.0, BOTTOM + 40.0, "middle", &self.x);
        match &self.shape {
            Shape::Bars { labels, parts } => bars(&mut canvas, labels, parts),
            Shape::Lines(lines) => curves(&mut canvas, lines, true),
            Shape::Points(points) => curves(&mut canvas, points, false),
        }
        canvas.text + "</svg>\n"
    }

    /// From where to where the horizontal axis goes, and how far up the vertical one.
    fn extent(&self) -> (f64, f64, f64) {
        let (mut from, mut to, mut top) = (f64::MAX, f64::MIN, 0.0_f64);
        match &self.shape {
            Shape::Bars { labels, parts } => {
                for bar in 0..labels.len() {
                    top = top.max(parts.iter().map(|(_, values)| values[bar]).sum());
                }
                (from, to) = (0.0, 1.0);
            }
            Shape::Lines(lines) | Shape::Points(lines) => {
                for (x, y) in lines.iter().flat_map(|(_, points)| points) {
                    (from, to, top) = (from.min(*x), to.max(*x), top.max(*y));
                }
            }
        }
        (from, to, (top * 1.05).max(1e-9))
    }
}

fn bars(canvas: &mut Canvas, labels: &[String], parts: &[(String, Vec<f64>)]) {
    let room = (RIGHT - LEFT) / labels.len().max(1) as f64;
    for (bar, label) in labels.iter().enumerate() {
        let (x, width) = (LEFT + room * (bar as f64 + 0.15), room * 0.7);
        let mut below = 0.0;
        for (at, (_, values)) in parts.iter().enumerate() {
            let (low, high) = (canvas.at_y(below), canvas.at_y(below + values[bar]));
            let (height, colour) = (low - high, COLOURS[at % COLOURS.len()]);
            canvas.put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill=\"{colour}\"/>"
            ));
            below += values[bar];
        }
        canvas.label(x + width / 2.0, BOTTOM + 16.0, "middle", label);
    }
    for (at, (name, _)) in parts.iter().enumerate() {
        canvas.legend(at, name);
    }
}

fn curves(canvas: &mut Canvas, curves: &[(String, Vec<(f64, f64)>)], joined: bool) {
    let mut ticks: Vec<f64> = Vec::new();
    for (at, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut path = String::new();
        for (x, y) in points {
            let (at_x, at_y) = (canvas.at_x(*x), canvas.at_y(*y));
            let _ = write!(
                path,
                "{}{at_x:.1} {at_y:.1}",
                if path.is_empty() { 'M' } else { 'L' }
            );
            canvas.put(format_args!(
                "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            ));
            ticks.push(*x);
        }
        if joined {
            canvas.put(format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            ));
        }
        canvas.legend(at, name);
    }
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    if !joined {
        let top = canvas.to;
        ticks = (0..6)
            .map(|at| f64::from(at) * step(top))
            .filter(|x| *x <= top)
            .collect();
    }
    let mut last = f64::MIN;
    for x in ticks {
        let at = canvas.at_x(x);
        // Numbers that would overlap are left out.
        if at - last > 34.0 {
            canvas.label(at, BOTTOM + 16.0, "middle", &number(x));
            last = at;
        }
    }
}
