//! The chart of the page.

use anyhow::Result;
use plotters::prelude::*;

use crate::records::Phase;
use crate::report::{HEADLINE, Report};

/// Width of a bar, where the bars of all contestants fill one unit with a gap.
const BAR: f64 = 0.2;

/// In the order of the contestants.
const COLORS: [RGBColor; 4] =
    [RGBColor(37, 99, 235), RGBColor(217, 119, 6), RGBColor(5, 150, 105), RGBColor(156, 163, 175)];

/// The medians, a group of bars for each phase, as SVG.
pub fn times(report: &Report) -> Result<String> {
    let (phases, contestants) = (HEADLINE.phases(), report.contestants(HEADLINE));
    // Where there is no status, this is the time until the pods are right.
    let value = |phase, contestant| report.median(phase, contestant, |it| Some(it.status.unwrap_or(it.pods)));
    let all = contestants.iter().flat_map(|one| phases.iter().filter_map(|phase| value(*phase, *one)));
    let most = all.fold(0.0, f64::max);

    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (900, 380)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{} sets of {} pods: seconds until every status is right", HEADLINE.sets, HEADLINE.pods);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(45)
        .build_cartesian_2d(-0.5..phases.len() as f64 - 0.5, 0.0..most * 1.1)?;
    let title = |group: &f64| phases[group.round() as usize].title().to_owned();
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(phases.len()).x_label_formatter(&title).x_label_style(("sans-serif", 14));
    mesh.max_light_lines(0).y_desc("seconds").draw()?;
    for ((number, contestant), color) in contestants.into_iter().enumerate().zip(COLORS) {
        let bar = |(group, phase): (usize, Phase)| {
            let left = group as f64 + (number as f64 - 2.0) * BAR;
            value(phase, contestant).map(|top| Rectangle::new([(left, 0.0), (left + BAR, top)], color.filled()))
        };
        chart
            .draw_series(phases.iter().copied().enumerate().filter_map(bar))?
            .label(contestant.title())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    drop((chart, area));
    Ok(svg)
}
