package main

import (
	"bytes"
	"errors"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// ours are the contests that Weir runs; the others are whom it is compared with.
var ours = map[string]bool{
	"delivery": true, "delivery 5 ms": true, "bulk": true, "bulk 5 ms": true, "statement step": true, "live step": true,
}

// rates are rows of a plot: each contest's median at its place, and the way from its least to its greatest rate.
type rates struct {
	plotter.XYs
	plotter.XErrors
}

// plot draws the rates of all contests, on a logarithmic axis, to an SVG.
func (r *report) plot(path string) error {
	contests, names := r.contests(), r.contestNames()
	if len(names) == 0 {
		return errors.New("--plot: no contest ran")
	}
	p := plot.New()
	p.Title.Text = "Operations per second: median, least and greatest round"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Label.Text = "per second (logarithmic)"
	low, high := math.Inf(1), 0.0
	colors := map[bool]color.Color{true: color.RGBA{R: 0x1f, G: 0x6f, B: 0xb2, A: 0xff}, false: color.RGBA{R: 0x88, G: 0x88, B: 0x88, A: 0xff}}
	sets := map[bool]*rates{true: {}, false: {}}
	labels := make([]string, len(names))
	for i, name := range names {
		row := len(names) - 1 - i // the first is on top
		labels[row] = name
		rate, set := contests[name].Rate, sets[ours[name]]
		set.XYs = append(set.XYs, plotter.XY{X: rate.Median, Y: float64(row)})
		set.XErrors = append(set.XErrors, struct{ Low, High float64 }{rate.Min - rate.Median, rate.Max - rate.Median})
		low, high = min(low, rate.Min), max(high, rate.Max)
	}
	for _, mine := range []bool{true, false} {
		if len(sets[mine].XYs) == 0 {
			continue
		}
		points, err := plotter.NewScatter(sets[mine])
		if err != nil {
			return err
		}
		points.GlyphStyle = draw.GlyphStyle{Color: colors[mine], Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		whiskers, err := plotter.NewXErrorBars(sets[mine])
		if err != nil {
			return err
		}
		whiskers.LineStyle.Color = colors[mine]
		p.Add(points, whiskers)
		p.Legend.Add(map[bool]string{true: "Weir", false: "peers and PostgreSQL's floor"}[mine], points)
	}
	p.Add(plotter.NewGrid())
	p.NominalY(labels...)
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	p.Legend.Top, p.Legend.Left = false, false
	svg, err := p.WriterTo(22*vg.Centimeter, vg.Length(3+len(names))*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
