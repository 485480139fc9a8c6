//! Relists of one pod (Kubernetes 1.36 and later) as roots of trees: they run on the goroutine of the relists, between two of these,
//! and are shown as requests are: the one that is open, and the longest.

use super::{
    correlator::Correlator,
    request_trees::{Material, Picked},
    trees,
};
use crate::{input::Layer, span::Span};

impl Correlator {
    /// The relists of one pod, each with the calls inside it.
    pub(super) fn pod_relists(&self, material: &Material<'_>) -> Vec<(Span, Vec<Span>)> {
        let hooks = &self.node.hooks;
        let mut picked = Picked::new(material.ended);
        for done in self.relists.pods() {
            let (ns, id) = (done.call.duration_ns(), done.call.id().into());
            let hook = hooks.get(&done.call.hook).filter(|hook| material.wants(&hook.operation));
            if hook.is_some() && picked.wants(ns, id) {
                picked.add(ns, id, done);
            }
        }
        let finished = picked.all().filter_map(|done| {
            let parts = done.parts.iter().filter_map(|part| trees::finished(part, hooks));
            Some((trees::finished(&done.call, hooks)?, parts.collect()))
        });
        let mut found: Vec<(Span, Vec<Span>)> = finished.collect();
        if material.ended.is_none() {
            found.extend(self.open_pod_relists());
        }
        found
    }

    fn open_pod_relists(&self) -> impl Iterator<Item = (Span, Vec<Span>)> {
        let hooks = &self.node.hooks;
        self.inside(Layer::PodRelist).into_iter().filter_map(|goroutine| {
            let open = self.open.on(goroutine).filter_map(|entry| trees::open(entry, hooks, &self.parks));
            let mut spans: Vec<Span> = open.filter(|span| span.layer() != Layer::Handler).collect();
            spans.sort_by_key(|span| span.id);
            let root = spans.iter().position(|span| span.layer() == Layer::PodRelist)?;
            let root = spans.swap_remove(root);
            let ended = self.relists.waiting(goroutine, root.start());
            spans.extend(ended.filter_map(|call| trees::finished(call, hooks)));
            Some((root, spans))
        })
    }
}
