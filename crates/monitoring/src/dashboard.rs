//! The dashboard as Grafana imports it: variables, rows, panels and the annotation of deaths.

use serde_json::{Value, json};

use crate::panels::{Panel, ROWS, Row, Shape};

const COLUMNS: u64 = 24;
const PANEL_HEIGHT: u64 = 8;

/// The dashboard's JSON.
#[must_use]
pub fn dashboard() -> String {
    let input = "DS_PROMETHEUS";
    let whole = json!({
        "__inputs": [{
            "name": input, "label": "Prometheus", "description": "Scrapes `stormlog serve`",
            "type": "datasource", "pluginId": "prometheus", "pluginName": "Prometheus",
        }],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        ],
        "title": "Stormlog: memory of programs",
        "description": "Ranks near their limit, where the memory is, and deaths by cause. Printed by `stormlog dashboard`.",
        "uid": "stormlog", "tags": ["stormlog", "memory"],
        "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
        "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "timezone": "utc",
        "templating": {"list": variables(input)},
        "annotations": {"list": [annotation()]},
        "links": [],
        "panels": panels(),
    });
    // Values of our own always print.
    serde_json::to_string_pretty(&whole).map(|text| text + "\n").unwrap_or_default()
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables(input: &str) -> Value {
    let label = |name: &str, label: &str, query: &str| {
        json!({
            "name": name, "label": label, "type": "query", "datasource": source(),
            "query": {"query": query, "refId": name}, "definition": query,
            "refresh": 2, "sort": 3, "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
        })
    };
    json!([
        {
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
            "current": {"selected": true, "text": format!("${{{input}}}"), "value": format!("${{{input}}}")},
        },
        label("job_id", "Job", "label_values(stormlog_run_info, job_id)"),
        label("host", "Host", "label_values(stormlog_run_info{job_id=~\"$job_id\"}, host)"),
        label("rank", "Rank", "label_values(stormlog_run_info{job_id=~\"$job_id\", host=~\"$host\"}, rank)"),
    ])
}

/// A mark at the moment of each death: the value of the series is its time.
fn annotation() -> Value {
    json!({
        "name": "Deaths", "enable": true, "iconColor": "red", "datasource": source(),
        "expr": "stormlog_last_death_timestamp_seconds * 1000", "useValueForTime": true, "step": "15s",
        "titleFormat": "{{cause}}", "textFormat": "A process died on {{instance}}", "tagKeys": "cause",
    })
}

fn panels() -> Vec<Value> {
    let (mut list, mut y, mut id) = (Vec::new(), 0, 0);
    for Row { title, panels } in ROWS {
        id += 1;
        list.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        }));
        y += 1;
        let mut x = 0;
        for panel in *panels {
            if x + panel.width > COLUMNS {
                (x, y) = (0, y + PANEL_HEIGHT);
            }
            id += 1;
            list.push(written(panel, id, (x, y)));
            x += panel.width;
        }
        y += PANEL_HEIGHT;
    }
    list
}

fn written(panel: &Panel, id: u64, (x, y): (u64, u64)) -> Value {
    let is_instant = matches!(panel.shape, Shape::Table | Shape::Bars | Shape::Stat);
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..='Z')
        .map(|(query, letter)| {
            json!({
                "refId": letter.to_string(), "expr": query.expr, "legendFormat": query.legend, "datasource": source(),
                "instant": is_instant, "range": !is_instant,
                "format": if panel.shape == Shape::Table { "table" } else { "time_series" },
            })
        })
        .collect();
    let mut value = json!({
        "id": id, "type": kind(panel.shape), "title": panel.title, "description": panel.help, "datasource": source(),
        "gridPos": {"h": PANEL_HEIGHT, "w": panel.width, "x": x, "y": y},
        "targets": targets,
        "fieldConfig": {"defaults": defaults(panel), "overrides": []},
        "options": options(panel.shape),
    });
    if panel.shape == Shape::Table {
        value["transformations"] = json!([
            {"id": "organize", "options": {"excludeByName": {"Time": true, "__name__": true, "job": true}}},
        ]);
    }
    value
}

fn kind(shape: Shape) -> &'static str {
    match shape {
        Shape::Lines | Shape::Stack => "timeseries",
        Shape::Table => "table",
        Shape::HeatMap => "status-history",
        Shape::Bars => "bargauge",
        Shape::Stat => "stat",
    }
}

fn defaults(panel: &Panel) -> Value {
    let mut defaults = json!({"unit": panel.unit, "min": 0});
    match panel.shape {
        Shape::Lines => defaults["custom"] = json!({"fillOpacity": 10, "showPoints": "never"}),
        Shape::Stack => {
            defaults["custom"] = json!({
                "fillOpacity": 60, "showPoints": "never", "stacking": {"mode": "normal", "group": "A"},
            });
        }
        Shape::HeatMap | Shape::Bars => defaults["color"] = json!({"mode": "continuous-GrYlRd"}),
        Shape::Table | Shape::Stat => {}
    }
    // The reports of a node's runs are served beside its series.
    defaults["links"] = json!([{
        "title": "Runs of this node", "url": "http://${__field.labels.instance}/runs", "targetBlank": true,
    }]);
    defaults
}

fn options(shape: Shape) -> Value {
    match shape {
        Shape::Lines | Shape::Stack => json!({
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["mean", "lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        Shape::Table => json!({"showHeader": true}),
        Shape::HeatMap => json!({"showValue": "never", "rowHeight": 0.9, "legend": {"showLegend": false}}),
        Shape::Bars => json!({
            "orientation": "horizontal", "displayMode": "gradient",
            "reduceOptions": {"calcs": ["lastNotNull"], "values": false},
        }),
        Shape::Stat => json!({
            "orientation": "auto", "textMode": "value_and_name", "colorMode": "value", "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "values": false},
        }),
    }
}
