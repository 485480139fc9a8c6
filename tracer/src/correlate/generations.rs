//! [`Generations`]: a map that forgets what has not been touched for long, without keeping an order.

use std::{collections::HashMap, hash::Hash, mem::replace};

/// Two maps: when the young one is full it becomes the old one, and the old one is forgotten.
#[derive(Debug)]
pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    capacity: usize,
}

impl<K: Hash + Eq + Copy, V: Default> Generations<K, V> {
    /// Remembers at least the last `capacity` keys touched, at most twice as many.
    pub(super) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    /// What is remembered of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// What is remembered of `key`, or a new entry; it is young now.
    pub(super) fn entry(&mut self, key: K) -> &mut V {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_default();
            if self.young.len() >= self.capacity {
                self.turn();
            }
            self.young.insert(key, value);
        }
        self.young.get_mut(&key).expect("it was just put there")
    }

    /// What is remembered of `key`, which is young now.
    pub(super) fn touch(&mut self, key: &K) -> Option<&V> {
        if self.old.contains_key(key) {
            self.entry(*key);
        }
        self.young.get(key)
    }

    /// Forgets what has not been touched since the last time, and remembers all else at least until the next time.
    pub(super) fn turn(&mut self) {
        let fresh = HashMap::with_capacity(self.young.len());
        self.old = replace(&mut self.young, fresh);
    }

    /// Number of keys remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last `capacity` keys are always remembered, and never more than twice as many.
    #[test]
    fn bounded_and_recent() {
        let mut map: Generations<u32, u32> = Generations::new(10);
        for n in 0..1000 {
            *map.entry(n) = n;
            assert!(map.len() <= 20);
            for recent in n.saturating_sub(9)..=n {
                assert_eq!(map.get(&recent), Some(&recent));
            }
        }
    }

    /// A key that is touched stays.
    #[test]
    fn touching_keeps() {
        let mut map: Generations<u32, u32> = Generations::new(10);
        for n in 0..1000 {
            map.entry(n);
            map.entry(0);
        }
        assert!(map.get(&0).is_some());
    }

    /// What is touched between two turns stays, however many there are; all else goes with the second.
    #[test]
    fn turns() {
        let mut map: Generations<u32, u32> = Generations::new(10);
        *map.entry(1) = 11;
        *map.entry(2) = 22;
        for _ in 0..5 {
            map.turn();
            assert_eq!(map.touch(&1), Some(&11));
        }
        assert_eq!(map.touch(&2), None);
        assert_eq!(map.len(), 1);
    }
}
