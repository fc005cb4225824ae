//! Plots as SVG text: bars, and lines over logarithmic axes.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that differ for the colour-blind too (Okabe and Ito), then their darker kin.
const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f", "#8c564b", "#1b6e50",
    "#7a3b00", "#5b2a86",
];

/// A line chart; both axes are logarithmic.
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Name of the x axis.
    pub x: String,
    /// Name of the y axis.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points; those not above zero are left out.
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// The SVG, or nothing when no line has two points.
    pub fn svg(mut self) -> Option<String> {
        for line in &mut self.series {
            line.points.retain(|(x, y)| *x > 0.0 && *y > 0.0);
        }
        self.series.retain(|s| !s.points.is_empty());
        if !self.series.iter().any(|s| s.points.len() > 1) {
            return None;
        }
        let all = || self.series.iter().flat_map(|s| &s.points);
        let across = Axis::over(all().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let up = Axis::over(all().map(|p| p.1), HEIGHT - BOTTOM, TOP);
        let mut out = open(&self.title, HEIGHT);
        for tick in across.ticks() {
            let x = across.place(tick);
            let _ = write!(out, "<line x1='{x:.1}' y1='{TOP}' x2='{x:.1}' y2='{:.1}' stroke='#ddd'/>", HEIGHT - BOTTOM);
            text(&mut out, x, HEIGHT - BOTTOM + 16.0, "middle", &short(tick));
        }
        for tick in up.ticks() {
            let y = up.place(tick);
            let _ = write!(out, "<line x1='{LEFT}' y1='{y:.1}' x2='{:.1}' y2='{y:.1}' stroke='#ddd'/>", WIDTH - RIGHT);
            text(&mut out, LEFT - 6.0, y + 4.0, "end", &short(tick));
        }
        text(&mut out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "middle", &self.x);
        text(&mut out, 8.0, TOP - 10.0, "start", &self.y);
        for (i, line) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points: Vec<String> =
                line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", across.place(*x), up.place(*y))).collect();
            let _ =
                write!(out, "<polyline fill='none' stroke='{colour}' stroke-width='2' points='{}'/>", points.join(" "));
            for (x, y) in points.iter().filter_map(|p| p.split_once(',')) {
                let _ = write!(out, "<circle cx='{x}' cy='{y}' r='3' fill='{colour}'/>");
            }
            let y = TOP + 8.0 + i as f64 * 18.0;
            let _ = write!(
                out,
                "<rect x='{:.1}' y='{:.1}' width='12' height='12' fill='{colour}'/>",
                WIDTH - RIGHT + 12.0,
                y - 10.0
            );
            text(&mut out, WIDTH - RIGHT + 30.0, y, "start", &line.name);
        }
        Some(out + "</svg>\n")
    }
}

/// Horizontal bars with their values.
pub fn bars(title: &str, bars: &[(String, f64)]) -> String {
    let height = TOP + bars.len() as f64 * 26.0 + 16.0;
    let most = bars.iter().map(|(_, v)| *v).fold(1e-9, f64::max);
    let (from, width) = (150.0, WIDTH - 150.0 - 80.0);
    let mut out = open(title, height);
    for (i, (name, value)) in bars.iter().enumerate() {
        let y = TOP + i as f64 * 26.0;
        let colour = if name.starts_with("interflow") { COLOURS[0] } else { COLOURS[7] };
        text(&mut out, from - 8.0, y + 14.0, "end", name);
        let _ = write!(
            out,
            "<rect x='{from}' y='{y:.1}' width='{:.1}' height='18' fill='{colour}'/>",
            value / most * width
        );
        text(&mut out, from + value / most * width + 6.0, y + 14.0, "start", &short(*value));
    }
    out + "</svg>\n"
}

/// A logarithmic axis between two places on the page.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        Self { low: low.log10() - 0.03, high: high.log10() + 0.03, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Powers of ten, with 2 and 5 between them when the range is short.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = powers.flat_map(|p| steps.iter().map(move |s| s * 10_f64.powi(p)));
        all.filter(|t| (self.low..=self.high).contains(&t.log10())).collect()
    }
}

fn open(title: &str, height: f64) -> String {
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' font-family='sans-serif' font-size='12'>\
         <rect width='100%' height='100%' fill='white'/>"
    );
    text(&mut out, WIDTH / 2.0, 20.0, "middle", title);
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = write!(out, "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{what}</text>");
}

/// A number in as few characters as a reader needs.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6).replace(".0", ""),
        v if v >= 10_000.0 => format!("{:.0}k", v / 1000.0),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{:.1}", v).replace(".0", ""),
        v => format!("{v:.3}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_maps_its_range_to_its_ends() {
        let axis = Axis::over([10.0, 1000.0].into_iter(), 0.0, 100.0);
        assert!(axis.place(10.0) > 0.0 && axis.place(10.0) < 3.0);
        assert!(axis.place(1000.0) > 97.0 && axis.place(1000.0) < 100.0);
        assert_eq!(axis.ticks(), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn chart_without_two_points_is_omitted() {
        let chart = |points| Chart {
            title: "t".into(),
            x: "x".into(),
            y: "y".into(),
            series: vec![Series { name: "a<b".into(), points }],
        };
        assert!(chart(vec![(1.0, 1.0), (2.0, 0.0)]).svg().is_none());
        let svg = chart(vec![(1.0, 1.0), (2.0, 4.0)]).svg().unwrap();
        assert!(svg.contains("<polyline") && svg.contains("a&lt;b"));
    }

    #[test]
    fn numbers_are_short() {
        for (value, shown) in
            [(0.05, "0.05"), (3.0, "3"), (3.25, "3.2"), (250.4, "250"), (16_384.0, "16k"), (2e6, "2M")]
        {
            assert_eq!(short(value), shown);
        }
    }
}
